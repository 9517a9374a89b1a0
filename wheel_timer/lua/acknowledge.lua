-- Entries of one lane are dealt with: out of the pending list and out of the stream.
-- KEYS:   1 the lane
-- ARGV:   1 group; 2.. entry ids
-- Output: how many entries were there
local ids = {unpack(ARGV, 2)}
redis.call('XACK', KEYS[1], ARGV[1], unpack(ids))
return redis.call('XDEL', KEYS[1], unpack(ids))
