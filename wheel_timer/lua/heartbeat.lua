-- "I am alive": remember this consumer with the Redis clock's time.
-- KEYS:   1 sorted set of consumers by last heartbeat (ms)
-- ARGV:   1 consumer; 2 silence in ms after which one counts as dead
-- Output: {how many are alive, this one's place among them by name (0 first), the dead ones' names}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
local edge = now - tonumber(ARGV[2])
local alive = redis.call('ZRANGEBYSCORE', KEYS[1], edge, '+inf')
local rank = 0
for _, name in ipairs(alive) do
  if name < ARGV[1] then
    rank = rank + 1
  end
end
return {#alive, rank, redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. edge)}
