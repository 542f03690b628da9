-- KEYS: a hash with the body and the token. ARGV: the token, the body.
-- Numbers of Lua are exact below 2^53, where tokens stay until the year 2242.
local seen = redis.call('HGET', KEYS[1], 'token')
if seen and tonumber(seen) > tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'body', ARGV[2])
return 1
