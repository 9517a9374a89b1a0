-- Take tokens from a bucket that fills at a steady rate.
-- KEYS:   1 hash: tokens, at (us of Redis' clock)
-- ARGV:   1 tokens a second; 2 how many it holds; 3 how many are wanted, 0 to make it only;
--         4 how many a bucket that is not there starts with
-- Output: {taken, us until the next one; 0 where all that was wanted was there}
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local rate, capacity, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = tonumber(ARGV[4])
if bucket[1] then
  local passed = math.max(0, now - tonumber(bucket[2]))
  tokens = math.min(capacity, tonumber(bucket[1]) + passed * rate / 1000000)
end
-- A sum of fractions may miss the whole number by a hair.
local taken = math.min(wanted, math.floor(tokens + 0.000000001))
tokens = math.max(0, tokens - taken)
redis.call(
  'HSET', KEYS[1], 'tokens', string.format('%.17g', tokens), 'at', string.format('%.0f', now)
)
redis.call('PEXPIRE', KEYS[1], 86400000)
if taken == wanted then
  return {taken, 0}
end
return {taken, math.ceil((1 - tokens) / rate * 1000000)}
