-- SPDX-License-Identifier: Apache-2.0
-- Reports of buckets: every author's counts, their sums (counts.lua), and the time at which the bucket is full again.
--
-- KEYS     one record each
-- ARGV     the part of the fleet that the node belongs to (counts.lua); the time; for each record five doubles and 16
--          bits: the author's count, if the report has new units and nothing else (else 0: the report is merged), the tat
--          that the author has seen, `from`, the time that the new units take (0 if the report is merged), the units of
--          all authors, less refunds, that are in the tat that the author has seen (0: not told), and which rate is the
--          record's; nine doubles for each report that is merged: count, demand, refunds, reset (0: none), units that a
--          reset keeps, acked count, acked refunds, known refunds, moves (0: all new units move the bucket; else fewer
--          than so many, from now on and not beyond the time given as `from`); for each rate: unit, and milliseconds that
--          the record lives after the bucket is full. Then for each record the author, and unless the report is merged
--          the growth of its count, and the time that the growth takes. The time, reset, tat and from are microseconds of
--          fleet time; unit is picoseconds
-- Returns  for each record what report_window.lua answers, and unless the record is refused its tat
--
-- tat is the theoretical arrival time: the time at which the bucket is full again. It is never earlier than the tat
-- that the author has seen, less the units that were refunded since (known refunds). From there it moves by the new
-- units: those that neither this record nor, if an earlier record was lost, that earlier record has had (acked count,
-- acked refunds).
--
-- The tat that the author has seen is without the units above its acked count. If an answer was lost, this record has
-- had some of these units already. They are added to the tat that the author has seen: then an earlier report of them
-- makes no difference. A tat of 0 says nothing.
--
-- An author whose acked count is larger than its count here has seen a record that was lost. Each author saw the lost
-- record at another time, and has had units since. So tat is at least the latest one that any of them saw. And units move
-- a bucket by no less than the time that they take, refunds by no more: so tat is no earlier than what an author has seen,
-- moved by the units that the record has by now beyond those that the author knew. Of all authors the one counts whose
-- tat, less the time of its known units, is the latest. In whatever order the authors report, and however often the
-- record is lost meanwhile, each one's units are in tat then.
--
-- `from` is the time up to which every node has reported all of its use. The bucket may have been full at that time,
-- but not since, because units used since may be reported in any order.
--
-- A report of the author '' reads a record, and writes nothing.
--
-- Where the rate differs from the last report's rate, the units that are owed stay. A reset fills the bucket once,
-- except for what its author has used since.
--
-- Fields: AUTHOR and sum as in counts.lua, and
--   unit     picoseconds that a unit takes, by the last report
--   tat:UNIT the time at which the bucket is full again, microseconds of fleet time. The unit is part of the name, so
--            that new units can be added to the time without a look at the unit
--   base     of a lost record: the time of the first report of an author that saw it; the tat that the author has seen
--            that counts, and its known units
--
-- New units of an author whose count here is its acked count, with no refunds, move tat from the latest of tat, the tat
-- that the author has seen, and `from`. So their time is added to tat with one call, and the result is replaced where
-- tat was the earlier one.
--
-- The record's time to live is set when tat enters another stretch of time, which is half of what the record lives after
-- the bucket is full. So a busy bucket's time to live is not set with every report, and is at most one such stretch too
-- short.
-- include common.lua
-- include fields.lua
-- include counts.lua
local REPAIR_US = 10000000 -- authors report a lost record within this time; their interval is much shorter
local LATEST_US = 280000000000000 -- tat is at most some nine years ahead: nodes count no further, and PEXPIRE has an end
local now_us = ARGV[2] + 0
local latest_us = now_us + LATEST_US
local values = numbers_of('dddddH', records, ARGV[3])
local at = #ARGV - 3 * records + #ARGV[4] / 36 -- the arguments before those of a record
-- Of each rate: the name of the field of tat, its numbers, and the stretch of a record's time to live.
local rates = {}
for n = 5, at, 2 do
    rates[#rates + 1] = {tat = 'tat:' .. ARGV[n], text = ARGV[n], unit_ps = ARGV[n] + 0, life_ms = ARGV[n + 1] + 0,
        stretch_us = ARGV[n + 1] * 500}
end

-- The tat of a bucket whose record was lost, after an author has reported a tat that it has seen, with so many known units
-- (0: not told; nil: of another rate). `there`: the units that the record has of all authors, less refunds, without new
-- ones.
local function repair(key, tat, seen, known, there, unit_ps)
    local field = call('HGET', key, 'base') or ''
    local since, from, units = match(field, '^(%d+) (%d+) (%d+)$')
    if not since or now_us - since > REPAIR_US or not known then
        since, from, units = now_us, 0, 0
    end
    since, from, units = since + 0, from + 0, units + 0
    if known and known > 0 and (units == 0 or (seen - from) * 1000000 > (known - units) * unit_ps) then
        from, units = seen, known
    end
    local new_field = format(THREE, since, from, units)
    if new_field ~= field and units > 0 then
        call('HSET', key, 'base', new_field)
    end
    if units > 0 then
        tat = max(tat, from + ceil((there - units) * unit_ps / 1000000))
    end
    return tat
end

-- A field of tat as a number; 0 if weir did not write it.
local function valid_tat(field)
    local tat = tonumber(field or 0) or 0
    return tat >= 0 and tat <= MOST and tat or 0
end

-- Adds the time of new units to tat. The result is nil, and tat is as before, if tat is not in its range, or is that of
-- another rate. Else tat and the tat before.
local function move(key, field, units_text, units_us, earliest)
    local tat = pcall('HINCRBY', key, field, units_text)
    if type(tat) ~= 'number' then
        return nil
    end
    local old_tat = tat - units_us
    if tat > latest_us or earliest > latest_us or old_tat <= 0 then
        set_back(key, field, units_text)
        return nil
    end
    if tat < earliest then
        call('HSET', key, field, format(ONE, earliest))
        tat = earliest
    end
    return tat, old_tat
end

local renewed = now_us % records + 1 -- the record whose time to live this batch sets in any case
for i = 1, records do
    local key, author, told, rate = KEYS[i], ARGV[at + 1], values[6 * i - 5], rates[values[6 * i]]
    local seen, from_us, units_us, known = values[6 * i - 4], values[6 * i - 3], values[6 * i - 2], values[6 * i - 1]
    local unit_ps, stretch_us = rate.unit_ps, rate.stretch_us
    local own, tat, old_tat = key, nil, nil
    if part ~= '' then
        local mark = pcall('HGET', key, 'mark')
        own = type(mark) == 'string' and part_of(key, part, mark) or nil
    end
    if told ~= 0 and own then
        local added
        -- include counts_add.lua
        if added then
            tat, old_tat = move(key, rate.tat, ARGV[at + 3], units_us, (seen > from_us and seen or from_us) + units_us)
        end
        if tat then
            to, out[to + 1], out[to + 2] = to + 2, added, tat
        elseif added then
            set_back(key, 'sum', ARGV[at + 2])
            set_back(own, author, ARGV[at + 2])
        end
    end
    local expires = i == renewed
    if not tat then
        local record = pcall('HMGET', key, author, 'sum', rate.tat, 'unit')
        if not record.err then
            local acked, acked_refunds, known_refunds, moves = 0, 0, 0, 0
            if told ~= 0 then
                acked = told - ARGV[at + 2]
            else
                acked, acked_refunds = merged[from + 6], merged[from + 7]
                known_refunds, moves = merged[from + 8], merged[from + 9]
            end
            if own ~= key then
                own, record = look_in_part(key, own, author, record)
            end
            merge(told, record[1], record[2])
            local old_field
            old_tat = valid_tat(record[3])
            tat = old_tat
            if record[4] and record[4] ~= rate.text then
                old_field = 'tat:' .. record[4]
                old_tat = valid_tat(call('HGET', key, old_field))
                tat = old_tat
                local old_unit_ps = tonumber(record[4]) or 0
                if old_unit_ps > 0 and tat > now_us then
                    tat = now_us + ceil((tat - now_us) / old_unit_ps * unit_ps)
                end
            end
            -- Units that are new to the bucket, and whether the author has seen a record that was lost.
            local new, lost = more, false
            if more > 0 and acked ~= old_count then
                lost = acked > old_count
                if lost then
                    new = max(count - acked, 0)
                elseif seen > 0 then
                    seen = seen + ceil((old_count - acked) * unit_ps / 1000000)
                end
            end
            local refunded = more_refunds
            if refunded > 0 and acked_refunds > old_refunds then
                refunded = max(refunds - acked_refunds, 0)
            end
            local told_seen = seen
            if seen > tat and old_sum_refunds > 0 then
                seen = seen - ceil(max(old_sum_refunds - known_refunds, 0) * unit_ps / 1000000)
            end
            tat = max(tat, seen)
            if lost then
                tat = repair(key, tat, told_seen, not old_field and known or nil, sum - new + refunded, unit_ps)
            end
            local since_us, most_us = from_us, nil
            if moves > 0 then
                new = min(new, moves - 1)
                since_us, most_us = now_us, max(tat, from_us)
            end
            if new > 0 then
                local new_us = new * unit_ps / 1000000
                local fraction = new_us % 1 -- rounded up, and without a call
                tat = (tat > since_us and tat or since_us) + (fraction > 0 and new_us - fraction + 1 or new_us)
                tat = most_us and min(tat, most_us) or tat
            end
            if refunded > 0 then
                tat = max(tat - ceil(refunded * unit_ps / 1000000), 0)
            end
            tat = min(tat, latest_us)
            if reset > old_reset then
                give_back(min(max(ceil((tat - now_us) * 1000000 / unit_ps) - kept, 0), sum - kept))
                tat = kept > 0 and now_us + ceil(kept * unit_ps / 1000000) or 0
            else
                reset = old_reset
            end
            if author ~= '' and (tat ~= old_tat or is_changed() or record[4] ~= rate.text or not record[2]) then
                if record[4] == rate.text then
                    write(key, own, author, rate.tat, format(ONE, tat))
                else
                    write(key, own, author, rate.tat, format(ONE, tat), 'unit', rate.text)
                    if old_field then
                        call('HDEL', key, old_field)
                    end
                end
            end
            expires = expires or part_begins or tat <= now_us
            answer()
            to, out[to + 1] = to + 1, tat
        elseif is_wrong_type(record) then
            to, out[to + 1] = to + 1, -2
        else
            return redis.error_reply(record.err)
        end
    end
    if tat and author ~= '' and (expires or tat - tat % stretch_us ~= old_tat - old_tat % stretch_us) then
        local ttl_ms = format(ONE, max(ceil((tat - now_us) / 1000), 0) + rate.life_ms)
        local failure = expire_all(key, ttl_ms, old_tat > 0 or part ~= '')
        if failure then
            return failure
        end
    end
    if told == 0 then
        at, from = at + 1, from + 9
    else
        at = at + 3
    end
end
return out
