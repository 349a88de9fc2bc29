-- SPDX-License-Identifier: Apache-2.0
-- The counts of a record: each author's own, and their sums. Included by report_window.lua and report_bucket.lua.
--
-- An author's counts are what it admitted (count), what it was asked for (demand) and what was given back to it
-- (refunds). They are cumulative and never decrease. The larger of the old value and the reported one is kept, so a
-- report that arrives twice or late changes nothing.
--
-- Fields of a record, in the fewest numbers that say it, since most reports are of keys that nobody was denied:
--   AUTHOR   "count", "count demand" or "count demand refunds reset"; demand is count where it is left out, and the
--            others are 0
--   sum      "net", "net demand" or "net demand refunds"; net is what counts: admitted less refunded
--
-- Redis keeps a hash of up to 512 fields in a seventh of the bytes that a larger one takes, and looks through it from its
-- beginning, 25 ns a field. So the authors of a large fleet are in several hashes. Each node belongs to one part of the
-- fleet. The authors of part '' are in the record itself, those of part 2 in `PREFIX:{tag}{2.MARK}`, which is short. The
-- sums are in the record.
-- Fields of a record with parts:
--   mark     the first field: a number of this record's own, which others that had its name and were lost did not have
--   parts    the parts that there are: ",2,5,"
-- If the record was lost, it gets another mark, which no part has. If a part was lost that `parts` lists, the record is
-- deleted. In both cases all authors find a record that was lost, and report their counts again. The parts of an earlier
-- mark expire.
--
-- Cost: first the calls of Redis, then conversions and new strings (bench/redis_cost.py, docs/decisions/019). So new
-- units of a record with plain numbers take two calls that convert nothing, and all else two calls for a record that
-- exists. What is done for those new units stands in counts_add.lua, as statements: as a function it would take 8 percent
-- more. All else is functions, which pass numbers in the variables of the script.

-- The numbers of a text in the form that struct has for one of `times` like ones.
local function numbers_of(form, times, text)
    return {struct.unpack('<' .. string.rep(form, times), text)}
end

local SMALL_MOST = 512 -- fields of a small hash, where the server's configuration does not say otherwise

local records = #KEYS
local part = ARGV[1]
local part_begins -- the author is the first of its part in this record
local merged, from = numbers_of('d', #ARGV[4] / 8, ARGV[4]), 0 -- of the reports that are merged; those before a record's
local out, to = {}, 0 -- the answer, and how many numbers it has
-- Of the report that is merged: the author's counts before it, and now; their growth; the sums over all authors, of which
-- `sum` is net, now, and of refunds before; the time of the author's last reset, and the one that the report says; units
-- that a reset keeps; whether the report's count is the author's; whether nothing of the author was there.
local old_count, old_demand, old_refunds, old_reset, count, demand, refunds, reset, kept, is_latest, is_new
local more, more_demand, more_refunds, sum, sum_demand, sum_refunds, old_sum_refunds

-- Merges a report into the author's field and the field of the sums. `plain`: the count of a report that says nothing but
-- a count, else 0, and the report's numbers are in `merged`.
local function merge(plain, field, sum_field)
    old_count, old_demand, old_refunds, old_reset = parse(field)
    sum, sum_demand, sum_refunds = parse(sum_field)
    old_sum_refunds = sum_refunds
    count, demand, refunds, reset, kept = plain, plain, 0, 0, 0
    if plain == 0 then
        count, demand, refunds = merged[from + 1], merged[from + 2], merged[from + 3]
        reset, kept = merged[from + 4], merged[from + 5]
    end
    more, more_demand, more_refunds = count - old_count, demand - old_demand, refunds - old_refunds
    is_latest, is_new = more >= 0, not field
    if not is_latest then
        count, more = old_count, 0
    end
    if more_demand < 0 then
        demand, more_demand = old_demand, 0
    end
    if more_refunds < 0 then
        refunds, more_refunds = old_refunds, 0
    end
    sum, sum_demand, sum_refunds = sum + more - more_refunds, sum_demand + more_demand, sum_refunds + more_refunds
end

-- Gives so many units back in the author's name, once for each reset.
local function give_back(units)
    if units > 0 then
        refunds, sum_refunds, sum = refunds + units, sum_refunds + units, sum - units
    end
end

-- True if the report has changed the author's field.
local function is_changed()
    return count ~= old_count or demand ~= old_demand or refunds ~= old_refunds or reset ~= old_reset
end

-- The hash that has the author's field, and the record as it was read, with that field in it. nil: the record has no mark
-- yet. If the part was lost, the record is deleted.
local function look_in_part(key, own, author, record)
    local field = own and pcall('HGET', own, author)
    if field and type(field) ~= 'string' then
        call('DEL', own) -- not a hash
        field = false
    end
    part_begins = not field and not (own and call('EXISTS', own) == 1)
    if own and part_begins and string.find(call('HGET', key, 'parts') or '', ',' .. part .. ',', 1, true) then
        call('DEL', key)
        return nil, {}
    end
    record[1] = field
    return own, record
end

-- Gives the record a mark, as its first field, so that it is found soon. Returns the author's part. The mark is made of
-- the time and the place in the answer, which no other record of a batch has.
local function make_mark(key)
    local time = call('TIME')
    local mark = format('%.0f', (time[1] % 1000 * 1000000 + time[2]) * 10000 + to)
    local all = call('HLEN', key) <= SMALL_MOST and call('HGETALL', key) or {}
    if #all > 0 then
        call('DEL', key)
    end
    call('HSET', key, 'mark', mark, 'parts', ',')
    for n = 1, #all, 2 do
        call('HSET', key, all[n], all[n + 1])
    end
    return part_of(key, part, mark)
end

-- Writes the author's field and the field of the sums, and other fields of the record.
local function write(key, own, author, ...)
    local field, sum_field
    if refunds ~= 0 or reset ~= 0 then
        field = format(FOUR, count, demand, refunds, reset)
    elseif demand ~= count then
        field = format(TWO, count, demand)
    else
        field = format(ONE, count)
    end
    if sum_refunds ~= 0 then
        sum_field = format(THREE, sum, sum_demand, sum_refunds)
    elseif sum_demand ~= sum then
        sum_field = format(TWO, sum, sum_demand)
    else
        sum_field = format(ONE, sum)
    end
    if own == key then
        call('HSET', key, author, field, 'sum', sum_field, ...)
        return
    end
    own = own or make_mark(key)
    call('HSET', own, author, field)
    call('HSET', key, 'sum', sum_field, ...)
    if part_begins then
        call('HSET', key, 'parts', (call('HGET', key, 'parts') or ',') .. part .. ',')
    end
end

-- Takes back what was added to a field; a field that was not there is not there again.
local function set_back(key, field, growth_text)
    if call('HINCRBY', key, field, '-' .. growth_text) == 0 then
        call('HDEL', key, field)
    end
end

-- Adds to the answer what a merged report is answered: the sum if the record has no more to say, else -1 and the counts.
-- Before that -3, if nothing of the author was there: a node that has reported to the record sees that it was lost.
-- A table of its own for each record would cost Redis more than its numbers do.
local function answer()
    if is_new then
        to, out[to + 1] = to + 1, -3
    end
    if is_latest and sum_demand == sum and sum_refunds == 0 and refunds == 0 then
        to, out[to + 1] = to + 1, sum
    else
        out[to + 1], out[to + 2], out[to + 3] = -1, count, sum + sum_refunds
        out[to + 4], out[to + 5], out[to + 6] = sum_demand, refunds, sum_refunds
        to = to + 6
    end
end

-- Sets the times to live of a record, and of its parts if it may have some.
local function expire_all(key, ttl_ms, has_parts)
    local mark = has_parts and call('HGET', key, 'mark')
    local parts = mark and call('HGET', key, 'parts') or ''
    local failure = expire(key, ttl_ms)
    for number in string.gmatch(parts, '%d+') do
        failure = expire(part_of(key, number, mark), ttl_ms) or failure
    end
    return failure
end
