-- SPDX-License-Identifier: Apache-2.0
-- A page of the names of one server, and what is in use of each record among them. Nothing is written.
--
-- The names are not known before the call, so they are no KEYS. Each is on this server.
--
-- ARGV     the cursor: '0', or that of the page before; the pattern of the names; how many names are looked at; fleet time
--          (microseconds)
-- Returns  {1: the user may not run SCAN, HMGET, HGET or ZCARD; 0, the next cursor ('0': this is the last page), name, units
--          (rounded up), ...}
-- include common.lua
-- include fields.lua
-- include use.lua
local now_us = tonumber(ARGV[4])
local page = pcall('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
if page.err then
    return {1}
end

local out, names = {0, page[1]}, page[2]
for n = 1, #names do
    local units, refused = use_of(names[n], now_us)
    if refused then
        return {1}
    end
    out[2 * n + 1], out[2 * n + 2] = names[n], units or 0
end
return out
