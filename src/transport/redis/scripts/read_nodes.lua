-- SPDX-License-Identifier: Apache-2.0
-- The nodes of a fleet and its time, as heartbeat.lua knows them. Nothing is written.
--
-- KEYS[1]  the set of nodes (heartbeat.lua)
-- Returns  {1: the key holds another type; 2: there is no set; 0, the server's clock (microseconds), by how much fleet time
--          is ahead of it (microseconds), members that no node has written, then for each node its id, its last heartbeat
--          and the times after which it is suspect and has failed (milliseconds)}
-- include common.lua
-- include nodes.lua
local time = call('TIME')
local clock_us = time[1] * 1000000 + time[2]
local all = pcall('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
if all.err then
    return is_wrong_type(all) and {1, clock_us, 0, 0} or all
end
local ahead_us, latest_us = 0, 0
local out = {#all > 0 and 0 or 2, clock_us, 0, 0}
for n = 1, #all, 2 do
    local is_creation, _, offset, noted = creation(all[n], all[n + 1])
    local suspect, lifetime, id = node_times(all[n], all[n + 1])
    if is_creation then
        ahead_us = offset_now(offset, noted, clock_us)
    elseif id then
        latest_us = max(latest_us, all[n + 1] * 1000)
        out[#out + 1], out[#out + 2] = id, floor(all[n + 1])
        out[#out + 1], out[#out + 2] = suspect, lifetime
    else
        out[4] = out[4] + 1
    end
end
-- The clock may have stepped back: the next heartbeat notes it.
local stepped_us = latest_us - (clock_us + ahead_us)
out[3] = ahead_us + (stepped_us > 0 and stepped_us <= STEP_MOST_US and stepped_us or 0)
return out
