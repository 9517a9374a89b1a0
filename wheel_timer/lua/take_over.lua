-- One page of what a dead consumer had read becomes another's. Of two who do it at once each entry
-- has one, for nothing comes between the look and the claim.
-- KEYS:   1 the lane
-- ARGV:   1 group; 2 the dead consumer; 3 the heir; 4 entries idle for less (ms) stay;
--         5 after which entry ("-" or "(ID"); 6 how many at most
-- Output: {ids of all that it held in this page, the entries that are the heir's now}
local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[5], '+', ARGV[6], ARGV[2])
if pending.err then
  if string.find(pending.err, 'NOGROUP', 1, true) then
    return {{}, {}}
  end
  return pending
end
local ids = {}
for i, entry in ipairs(pending) do
  ids[i] = entry[1]
end
if #ids == 0 then
  return {ids, {}}
end
return {ids, redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], ARGV[4], unpack(ids))}
