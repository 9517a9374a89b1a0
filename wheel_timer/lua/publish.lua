-- Put a page of references into lanes, as far as they have room, if this epoch still leads.
-- KEYS:   1 the epoch key of this shard and tag; 2.. the lanes
-- ARGV:   1 epoch; then for each lane: its window (entries), and 1 where a tenth of its room is to
--         be left for others, else 0; then pairs: index of the lane in KEYS, the packed reference
-- Output: {refused_by, missing, ...}: refused_by is 0, or the higher epoch that leads (nothing was
--         added then); missing is 1 where the epoch key was not there: this Redis is new, or lost;
--         then for each lane: how many of its references were added, the first ones, and how many
--         entries it held before
local seen = redis.call('GET', KEYS[1])
local epoch = tonumber(ARGV[1])
if seen and tonumber(seen) > epoch then
  return {tonumber(seen), 0}
end
if not seen or tonumber(seen) < epoch then
  redis.call('SET', KEYS[1], ARGV[1])
end
local answer = {0, seen and 0 or 1}
local room = {}
for lane = 2, #KEYS do
  local held = redis.call('XLEN', KEYS[lane])
  room[lane] = math.max(0, tonumber(ARGV[2 * lane - 2]) - held)
  if ARGV[2 * lane - 1] == '1' then
    room[lane] = room[lane] - math.floor(room[lane] / 10)
  end
  answer[2 * lane - 1] = 0
  answer[2 * lane] = held
end
for i = 2 * #KEYS, #ARGV, 2 do
  local lane = tonumber(ARGV[i])
  local added = answer[2 * lane - 1]
  if added < room[lane] then
    redis.call('XADD', KEYS[lane], '*', 'r', ARGV[i + 1])
    answer[2 * lane - 1] = added + 1
  end
end
return answer
