-- Entries of one lane are dealt with: out of the pending list and out of the stream, and counted.
-- KEYS:   1 the lane; 2 the count of its entries dealt with
-- ARGV:   1 group; 2.. entry ids
-- Output: how many entries were there
local ids = {unpack(ARGV, 2)}
redis.call('XACK', KEYS[1], ARGV[1], unpack(ids))
local gone = redis.call('XDEL', KEYS[1], unpack(ids))
redis.call('INCRBY', KEYS[2], gone)
redis.call('PEXPIRE', KEYS[2], 86400000)
return gone
