-- Forget a dead consumer of one lane, unless it holds entries: they would be nobody's.
-- KEYS:   1 the lane
-- ARGV:   1 group; 2 consumer
-- Output: 1 where it holds nothing here any more, else 0
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 1
end
local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
if pending.err then
  return 1
end
if #pending > 0 then
  return 0
end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1
