-- "I am alive": remember this consumer with the Redis clock's time.
-- KEYS:   1 sorted set of consumers by last heartbeat (ms)
-- ARGV:   1 consumer; 2 silence in ms after which one counts as dead
-- Output: {now in ms, 1 where this one was in the set before, the names of those alive, each
--         followed by its last heartbeat, the dead ones' names}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Beats of times to come are from before this clock was set back: they age from now on.
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')) do
  redis.call('ZADD', KEYS[1], now, name)
end
local known = redis.call('ZSCORE', KEYS[1], ARGV[1]) and 1 or 0
redis.call('ZADD', KEYS[1], now, ARGV[1])
local edge = now - tonumber(ARGV[2])
return {
  now,
  known,
  redis.call('ZRANGEBYSCORE', KEYS[1], edge, '+inf', 'WITHSCORES'),
  redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. edge),
}
