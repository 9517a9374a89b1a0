-- Put near tasks' references into one lane, as far as it has room and nobody stands in line for it.
-- KEYS:   1 the lane; 2 the mark that tasks wait in Postgres for its room
-- ARGV:   1 its window (entries); 2.. packed references
-- Output: how many were added, the first ones
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
local room = tonumber(ARGV[1]) - redis.call('XLEN', KEYS[1])
local added = 0
for i = 2, #ARGV do
  if added >= room then
    break
  end
  redis.call('XADD', KEYS[1], '*', 'r', ARGV[i])
  added = added + 1
end
return added
