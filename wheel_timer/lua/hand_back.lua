-- Give unclaimed entries back: each is added anew, for whoever reads next, and the old one goes.
-- KEYS:   1 the lane
-- ARGV:   1 group; then pairs: entry id, the packed reference
-- Output: how many were added
for i = 2, #ARGV, 2 do
  redis.call('XADD', KEYS[1], '*', 'r', ARGV[i + 1])
  redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
  redis.call('XDEL', KEYS[1], ARGV[i])
end
return (#ARGV - 1) / 2
