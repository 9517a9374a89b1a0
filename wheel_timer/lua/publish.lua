-- Put a page of references into lanes, if this epoch still leads.
-- KEYS:   1 the epoch key of this shard and tag; 2.. the lanes
-- ARGV:   1 epoch; then pairs: index of the lane in KEYS, the packed reference
-- Output: {refused_by, missing}: refused_by is 0, or the higher epoch that leads (nothing was
--         added then); missing is 1 where the epoch key was not there: this Redis is new, or lost
local seen = redis.call('GET', KEYS[1])
local epoch = tonumber(ARGV[1])
if seen and tonumber(seen) > epoch then
  return {tonumber(seen), 0}
end
if not seen or tonumber(seen) < epoch then
  redis.call('SET', KEYS[1], ARGV[1])
end
for i = 2, #ARGV, 2 do
  redis.call('XADD', KEYS[tonumber(ARGV[i])], '*', 'r', ARGV[i + 1])
end
return {0, seen and 0 or 1}
