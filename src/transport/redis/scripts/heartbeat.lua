-- SPDX-License-Identifier: Apache-2.0
-- A node's heartbeat. The answer has fleet time and the nodes that are live.
--
-- KEYS[1]  sorted set of nodes by their last heartbeat, milliseconds. A member is "node:suspect:lifetime": after `suspect`
--          milliseconds without a heartbeat the node is suspect, and after `lifetime` it has failed
-- ARGV     the node's member, its `suspect` and `lifetime`, what the node does (0: it has reported its use up to now;
--          1: it leaves; 2: it only asks), fleet time by the node, microseconds (0: it knows none), its host's clock,
--          microseconds (0: not told)
-- Returns  {seconds, microseconds of fleet time, the node's last heartbeat here (0: none), live nodes (with this one),
--          suspect nodes, the watermark (the earliest of all last heartbeats, milliseconds), when this set was created
--          (microseconds), by how much fleet time is ahead of the server's clock (milliseconds)}
--
-- The time of a heartbeat is the fleet time up to which the node has reported, by the node. So a late heartbeat does not
-- make a failed node live. Heartbeats are late when a server that hung works off its queue.
--
-- The set keeps the time of its creation as a member "!microseconds" at its end. A set that was lost and created again
-- has another one. The set lives much longer than its nodes. So a Redis that evicts the keys that expire next does not
-- evict the set first.
--
-- Fleet time runs by the server's clock and never steps back. The clock can step back: somebody sets it, or another
-- server's clock is behind. If the clock is then before the latest heartbeat, the member says by how much:
-- "!microseconds:offset:clock when it was noted". Fleet time is then ahead by the offset and runs slower by 1/256 until
-- the offset is gone. Nodes slew faster than that (fleet/fleet_clock.c), so the nodes that are up follow. Nodes that
-- join read the same time. A set that was lost starts at the first node's fleet time, if that is ahead by more than a
-- guess. A node that leaves notes the time, because it may be the last node.
--
-- A step of more than an hour needs a witness, because a member that weir did not write looks like such a step.
--   back      the witness is the node's own fleet time, which runs by its host's uptime. If the node knows none, it is
--             that all heartbeats are later than the clock
--   forward   the witness is the clock of the node's host, if that has stepped forward as well (the machines were
--             suspended). Fleet time then follows, by up to two years. Without a witness fleet time stays, and the
--             offset is less than 0, until the clock comes back or a host's clock agrees with it. Nodes keep buckets'
--             times in a range of nine years
--
-- Whatever else lies under the name costs no heartbeat. A key of another type is deleted, and so is a set of more
-- members than a fleet has nodes; the set is then created again. Members that no node writes are removed: at the end of
-- the set, all of them at once when one is seen there; elsewhere, when they are late.
-- include common.lua
-- include nodes.lua
local KEEP_MS, NODES_MOST, PAGE = '86400000', 10000, 100
local GUESS_US = 50000
local FOLLOW_MOST_US = 63072000000000 -- two years: nodes tell times apart by up to four
local key, member, suspect_ms, lifetime_ms = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local leaves, asks = ARGV[4] == '1', ARGV[4] == '2'
local clock = call('TIME')
local clock_us = clock[1] * 1000000 + clock[2]
local count = pcall('ZCARD', key)
if type(count) == 'table' and not is_wrong_type(count) then
    return count
end
if type(count) == 'table' or count > NODES_MOST then
    call('DEL', key)
end

-- Reads the last two members, which should be the latest heartbeat and the creation. False if one of them is neither;
-- else true, the time of the heartbeat, and the creation with its numbers.
local function read_end()
    local last_two = call('ZRANGE', key, -2, -1, 'WITHSCORES')
    local creation_member, created, offset, noted = nil, nil, '', ''
    if #last_two > 0 then
        creation_member, created, offset, noted = creation(last_two[#last_two - 1], last_two[#last_two])
    end
    if #last_two > 0 and (not creation_member or (#last_two > 2 and not node_times(last_two[1], last_two[2]))) then
        return false
    end
    return true, tonumber(last_two[#last_two - 2]), creation_member, created, offset, noted
end

-- Removes every member that neither a node nor this script has written.
local function clean()
    local from, found, page = 0, false, nil
    repeat
        page = call('ZRANGE', key, from, from + PAGE - 1, 'WITHSCORES')
        for i = 1, #page, 2 do
            local is_creation = not found and creation(page[i], page[i + 1])
            if is_creation or node_times(page[i], page[i + 1]) then
                from, found = from + 1, found or is_creation
            else
                call('ZREM', key, page[i])
            end
        end
    until #page == 0
end

local is_clean, latest_ms, creation_member, created, offset, noted = read_end()
if not is_clean then
    clean()
    is_clean, latest_ms, creation_member, created, offset, noted = read_end()
end
if not is_clean then
    -- There are nodes, and no creation.
    latest_ms, creation_member, created, offset, noted = nil, nil, nil, '', ''
end
local last_ms = tonumber(call('ZSCORE', key, member) or 0)
last_ms = last_ms >= 0 and last_ms <= MOST and last_ms or 0
local node_us, host_us = tonumber(ARGV[5] or 0), tonumber(ARGV[6] or 0)
local has_offset = offset ~= ''
local noted_us = tonumber(noted) or 0
local noted_offset_us = tonumber(offset) or 0
noted_offset_us = math.abs(noted_offset_us) <= OFFSET_MOST_US and noted_offset_us or 0
local offset_us = offset_now(offset, noted, clock_us)
local latest_us = latest_ms and latest_ms * 1000
if not latest_us and has_offset and noted_us <= MOST then
    latest_us = noted_us + noted_offset_us -- a node that left has noted the time
end
-- changed: the creation is to be written again. shift_us: by how much the heartbeats move with fleet time.
-- is_unreal: the latest heartbeat is one that no node has made.
local changed, shift_us, is_unreal = not created or (has_offset and offset_us == 0), 0, false
local is_confirmed = host_us > 0 and math.abs(host_us - clock_us) <= STEP_MOST_US

-- True if fleet time goes forward from this time to the server's clock.
local function follows(from_us)
    return (is_confirmed or host_us == 0) and clock_us - from_us <= FOLLOW_MOST_US
end

local ahead_us = latest_us and latest_us - (clock_us + offset_us)
if not latest_us then
    -- There is no heartbeat: fleet time is the first node's.
    local least_us, most_us = clock_us + offset_us - STEP_MOST_US, clock_us + OFFSET_MOST_US
    if node_us > clock_us + offset_us + GUESS_US and node_us <= most_us then
        offset_us, changed = node_us - clock_us, true
    elseif node_us > 0 and node_us < least_us and not follows(node_us) then
        offset_us, changed = node_us - clock_us, true
    end
elseif ahead_us > 0 then
    local is_real = true
    if ahead_us > STEP_MOST_US and node_us > 0 then
        is_real = node_us > clock_us + offset_us + STEP_MOST_US
    elseif ahead_us > STEP_MOST_US and latest_ms then
        is_real = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] * 1000 > clock_us + offset_us
    end
    if is_real and latest_us <= clock_us + OFFSET_MOST_US then
        -- The node knows how long ago the latest heartbeat was.
        if node_us > latest_us and node_us < latest_us + lifetime_ms * 1000 then
            latest_us = node_us
        end
        offset_us, changed = latest_us - clock_us, true
    else
        is_unreal = true
    end
elseif max(node_us, latest_us) - (clock_us + offset_us) < -STEP_MOST_US then
    local there_us = max(node_us, latest_us)
    changed = true
    if clock_us <= there_us + STEP_MOST_US then
        offset_us = max(there_us - clock_us, 0)
    elseif not follows(there_us) then
        offset_us = there_us - clock_us
    else
        offset_us, shift_us = 0, clock_us - there_us
    end
elseif offset_us < 0 and is_confirmed and follows(clock_us + offset_us) then
    offset_us, shift_us, changed = 0, -offset_us, true
end
if offset_us < 0 and offset_us >= -STEP_MOST_US then
    offset_us, changed = 0, true
end
if changed or leaves then
    if created then
        call('ZREM', key, creation_member)
    end
    created = created or format('%.0f', clock_us)
    local note = (offset_us ~= 0 or leaves) and format(':%.0f:%.0f', offset_us, clock_us) or ''
    call('ZADD', key, '+inf', '!' .. created .. note)
end
local now_us = clock_us + offset_us
local now_ms = floor(now_us / 1000)
if is_unreal or shift_us > 0 then
    -- The heartbeats were made by the time before: they move with it.
    local all = call('ZRANGE', key, 0, -2, 'WITHSCORES')
    for i = 1, #all, 2 do
        local then_ms = min(tonumber(all[i + 1]) + floor(shift_us / 1000), now_ms)
        call('ZADD', key, format('%.0f', then_ms), all[i])
    end
end
local own_ms = min(last_ms + floor(shift_us / 1000), now_ms)
if leaves then
    call('ZREM', key, member)
    own_ms = now_ms
elseif not asks then
    local reported_ms = node_us > 0 and floor(node_us / 1000) or now_ms
    own_ms = min(max(reported_ms, own_ms), now_ms)
    call('ZADD', key, format('%.0f', own_ms), member)
end
-- The nodes, the longest silent first. Mostly that one is not late, so the first page is one node.
local suspect, watermark, from, page, is_late = 0, now_ms, 0, 0, true
while is_late do
    local members = call('ZRANGE', key, from, from + page, 'WITHSCORES')
    is_late = #members > 0
    for i = 1, #members, 2 do
        local beat_ms = tonumber(members[i + 1])
        local silent_ms = now_ms - beat_ms
        is_late = silent_ms > suspect_ms
        if not is_late then
            watermark = min(watermark, beat_ms)
            break
        end
        local node_suspect_ms, node_lifetime_ms = node_times(members[i], members[i + 1])
        if not node_lifetime_ms or silent_ms > node_lifetime_ms then
            call('ZREM', key, members[i])
        else
            from = from + 1
            suspect = suspect + (silent_ms > node_suspect_ms and 1 or 0)
            watermark = min(watermark, beat_ms)
        end
    end
    page = 99
end
local failure = expire(key, KEEP_MS)
if failure then
    return failure
end
local live = call('ZCARD', key) - 1 - suspect
if now_ms - own_ms > suspect_ms then
    live = live + 1 -- the node runs, but has not reported yet
    suspect = max(suspect - (now_ms - own_ms <= lifetime_ms and 1 or 0), 0)
end
return {floor(now_us / 1000000), now_us % 1000000, last_ms, live, suspect, watermark,
        tonumber(created), floor(offset_us / 1000)}
