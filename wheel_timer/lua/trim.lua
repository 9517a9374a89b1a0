-- Drop entries below min(oldest pending, last delivered): acknowledged, but still in the stream.
-- KEYS:   1 the lane
-- ARGV:   1 group
-- Output: how many were dropped
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
local edge = nil
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local fields = {}
  for i = 1, #group, 2 do
    fields[group[i]] = group[i + 1]
  end
  if fields['name'] == ARGV[1] then
    edge = fields['last-delivered-id']
  end
end
if not edge then
  return 0
end
local pending = redis.call('XPENDING', KEYS[1], ARGV[1])
if pending[1] > 0 then
  edge = pending[2]
end
return redis.call('XTRIM', KEYS[1], 'MINID', '~', edge)
