-- SPDX-License-Identifier: Apache-2.0
-- Entries of single keys, if they have changed.
--
-- KEYS[1]  hash: "policy:key" -> entry; a field "version", where there is one, changes with every change
-- ARGV     the version known
-- Returns  {version}, or {version, field, value, ...} where that is another one. A hash of another type is none
--
-- Without a field "version" the version is a digest of all that is there, which costs some 0.3 us per entry.
local version = redis.pcall('HGET', KEYS[1], 'version')
if type(version) == 'table' and version.err then
    return {'none'}
end
local all = nil
if version then
    version = 'v' .. string.sub(version, 1, 40)
else
    all = redis.call('HGETALL', KEYS[1])
    version = #all == 0 and 'none' or redis.sha1hex(table.concat(all, '\0'))
end
if version == ARGV[1] then
    return {version}
end
all = all or redis.call('HGETALL', KEYS[1])
local out = {version}
for n = 1, #all, 2 do
    if all[n] ~= 'version' then
        out[#out + 1] = all[n]
        out[#out + 1] = all[n + 1]
    end
end
return out
