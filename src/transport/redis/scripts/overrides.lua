-- SPDX-License-Identifier: Apache-2.0
-- The overrides: entries of single keys. They are answered only if they have changed.
--
-- KEYS[1]  hash: "policy:key" -> entry. A field "version" is optional; whoever writes it changes it with every change
-- ARGV     the version that the node has
-- Returns  {version} if that is the node's version, else {version, number of entries left out, field, value, ...}. A key
--          of another type counts as a hash without entries
--
-- Without a field "version" the version is a digest of everything read. The digest costs some 0.5 us per entry.
--
-- The answer is bounded, whatever the size of the hash: at most ENTRIES_MOST entries, of BYTES_MOST in all. An entry of
-- more than ENTRY_MOST bytes cannot be well-formed and is left out. Which entries of a larger hash are answered depends
-- on the order of HSCAN. That order is one and the same for all nodes that ask this server, until the hash or the
-- server changes.
--
-- The work is bounded as well. The hash is read in slices, and reading ends after READ_MOST bytes. READ_MOST is larger
-- than BYTES_MOST, so some long entries do not hide the others.
-- include common.lua
local ENTRIES_MOST, BYTES_MOST, ENTRY_MOST, READ_MOST = 10000, 2097152, 4096, 33554432
local SLICE_MOST, SLICE_BYTES, SLICES, VERSION_MOST = 512, 262144, 4096, 1024
local key = KEYS[1]
local length = pcall('HSTRLEN', key, 'version')
if type(length) == 'table' then
    if is_wrong_type(length) then
        return {'none'}
    end
    length = 1 -- the user may not run HSTRLEN
end
local version = length > 0 and length <= VERSION_MOST and pcall('HGET', key, 'version')
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
    local page = pcall('HSCAN', key, cursor, 'COUNT', count)
    if page.err then
        page = {'0', call('HGETALL', key)} -- the user may not run HSCAN; the answer is bounded all the same
    end
    local entries = page[2]
    cursor, slices = page[1], slices + 1
    for n = 1, #entries, 2 do
        local field, value = entries[n], entries[n + 1]
        local size = #field + #value
        read, seen = read + size, seen + 1
        if field == 'version' then
            versions = 1
        elseif size <= ENTRY_MOST then
            if kept == ENTRIES_MOST or bytes + size > BYTES_MOST then
                full = true
                break
            end
            kept, bytes = kept + 1, bytes + size
            out[2 * kept + 1], out[2 * kept + 2] = field, value
        end
    end
    -- As many entries as fit a slice, by the mean size so far, but at most twice as many as before.
    count = min(2 * count, SLICE_MOST, max(floor(SLICE_BYTES * seen / (read + 1)), 1))
until cursor == '0' or full or read >= READ_MOST or slices == SLICES
local left_out = seen - versions - kept
if full or cursor ~= '0' then
    local all = pcall('HLEN', key)
    all = type(all) == 'number' and all - (length > 0 and 1 or 0) or 0
    left_out = max(all - kept, left_out, 1)
end
if not version then
    version = kept + left_out == 0 and 'none' or
                  redis.sha1hex(table.concat(out, '\0', 3) .. (left_out > 0 and '\0\0' or ''))
    if version == ARGV[1] then
        return {version}
    end
end
out[1], out[2] = version, left_out
return out
