-- SPDX-License-Identifier: Apache-2.0
-- Entries of single keys, if they have changed.
--
-- KEYS[1]  hash: "policy:key" -> entry; a field "version", where there is one, changes with every change
-- ARGV     the version known
-- Returns  {version}, or {version, entries left out, field, value, ...} where that is another one. A hash of another type
--          is none
--
-- Without a field "version" the version is a digest of all that is read, which costs some 0.5 us per entry.
--
-- Whatever the hash's size, the answer is bounded: at most MOST entries, of MOST_BYTES in all. One longer than LONGEST
-- cannot be well-formed, and is left out. Which entries are read of more than that is up to the order in which HSCAN goes:
-- the same for all who ask this server, until the hash or the server is another one. The work is bounded, too: the hash
-- is read in slices, and reading ends when READ_BYTES have gone by, which is more than MOST_BYTES so that some long
-- entries do not hide the others.
local MOST, MOST_BYTES, LONGEST, READ_BYTES = 10000, 2097152, 4096, 33554432
local SLICE_MOST, SLICE_BYTES, SLICES, VERSION_MOST = 512, 262144, 4096, 1024
local key = KEYS[1]
local length = redis.pcall('HSTRLEN', key, 'version')
if type(length) == 'table' then
    if string.sub(length.err, 1, 9) == 'WRONGTYPE' then
        return {'none'}
    end
    length = 1 -- the user may not ask
end
local version = length > 0 and length <= VERSION_MOST and redis.pcall('HGET', key, 'version')
if type(version) == 'table' then
    return {'none'}
end
if version then
    version = 'v' .. string.sub(version, 1, 40)
    if version == ARGV[1] then
        return {version}
    end
end
local out, kept, bytes, read, seen, versions = {'', 0}, 0, 0, 0, 0, 0
local cursor, count, slices, full = '0', 8, 0, false
repeat
    local page = redis.pcall('HSCAN', key, cursor, 'COUNT', count)
    if page.err then
        page = {'0', redis.call('HGETALL', key)} -- the user may not scan; what is answered is bounded all the same
    end
    local entries = page[2]
    cursor, slices = page[1], slices + 1
    for n = 1, #entries, 2 do
        local field, value = entries[n], entries[n + 1]
        local size = #field + #value
        read, seen = read + size, seen + 1
        if field == 'version' then
            versions = 1
        elseif size <= LONGEST then
            if kept == MOST or bytes + size > MOST_BYTES then
                full = true
                break
            end
            kept, bytes = kept + 1, bytes + size
            out[2 * kept + 1], out[2 * kept + 2] = field, value
        end
    end
    -- As many as fit a slice, by those so far; but at most twice as many as before.
    count = math.min(2 * count, SLICE_MOST, math.max(math.floor(SLICE_BYTES * seen / (read + 1)), 1))
until cursor == '0' or full or read >= READ_BYTES or slices == SLICES
local others = seen - versions - kept
if full or cursor ~= '0' then
    local all = redis.pcall('HLEN', key)
    all = type(all) == 'number' and all - (length > 0 and 1 or 0) or 0
    others = math.max(all - kept, others, 1)
end
if not version then
    version = kept + others == 0 and 'none' or
                  redis.sha1hex(table.concat(out, '\0', 3) .. (others > 0 and '\0\0' or ''))
    if version == ARGV[1] then
        return {version}
    end
end
out[1], out[2] = version, others
return out
