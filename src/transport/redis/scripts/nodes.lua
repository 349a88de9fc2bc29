-- SPDX-License-Identifier: Apache-2.0
-- The members of the set of nodes. Included by heartbeat.lua and read_nodes.lua.
local LIFETIME_MOST_MS, NAME_MOST, SLOWER = 1200000, 64, 256
local STEP_MOST_US = 3600000000 -- an hour: a larger step needs a witness
local OFFSET_MOST_US = 3155760000000000 -- 100 years
local CREATED, NODE = '^!(%d+):?(%-?%d*):?(%d*)$', '^([^:!][^:]*):(%d+):(%d+)$'

-- If a member keeps the time of the set's creation: the member, and its numbers. Else nothing.
local function creation(name, score)
    local created, offset, noted = match(name, CREATED)
    if created and tonumber(score) == math.huge and tonumber(created) <= MOST then
        return name, created, offset, noted
    end
end

-- If a member can be a node's: the times after which the node is suspect, and has failed, and its id. Else nothing.
local function node_times(name, score)
    local id, suspect, lifetime = match(name, NODE)
    suspect, lifetime, score = tonumber(suspect), tonumber(lifetime), tonumber(score)
    if lifetime and lifetime <= LIFETIME_MOST_MS and #name <= NAME_MOST and score >= 0 and score <= MOST then
        return suspect, lifetime, id
    end
end

-- By how much fleet time is ahead of the server's clock, after a member has noted an offset at a time of that clock.
local function offset_now(offset, noted, clock_us)
    local offset_us, noted_us = tonumber(offset) or 0, tonumber(noted) or 0
    offset_us = math.abs(offset_us) <= OFFSET_MOST_US and offset_us or 0
    if offset_us > 0 then
        local passed_us = clock_us - noted_us
        offset_us = max(offset_us - floor(max(passed_us, 0) / SLOWER), 0)
        if passed_us < -STEP_MOST_US then
            offset_us = 0 -- the clock has stepped back by more than an hour since
        end
    end
    return offset_us
end
