-- SPDX-License-Identifier: Apache-2.0
-- A page of the hash of overrides, whatever stands there: nodes read it by overrides.lua, which has bounds. A name or value
-- that is too long for an override is cut, and is too long then as well. Nothing is written.
--
-- KEYS[1]  the hash (overrides.lua)
-- ARGV     the cursor: '0', or that of the page before
-- Returns  {1: the key holds another type; 0, the next cursor ('0': this is the last page), field, value, ...}
-- include common.lua
local ENTRY_MOST = 4096 -- as in overrides.lua
local page = pcall('HSCAN', KEYS[1], ARGV[1], 'COUNT', 200)
if page.err then
    return is_wrong_type(page) and {1} or page
end
local out, entries = {0, page[1]}, page[2]
for n = 1, #entries do
    out[n + 2] = string.sub(entries[n], 1, ENTRY_MOST + 1)
end
return out
