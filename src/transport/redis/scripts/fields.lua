-- SPDX-License-Identifier: Apache-2.0
-- How a field of a record is read, and where a part is (counts.lua says what they are).
-- The largest number below 2^63. HINCRBY counts exactly up to there; a count that is read above 2^53 is rounded to the
-- 16th digit.
local END = 9223372036854774784

-- The numbers of a field. A field that weir did not write counts as zeros.
local function parse(field)
    local first, second, third, fourth = tonumber(field or 0), nil, nil, nil
    if first and first >= 0 and first <= END then
        return first, first, 0, 0
    end
    first, second = match(field, '^(%d+) (%d+)$') -- mostly; it takes a quarter less
    if first then
        first, second, third, fourth = first + 0, second + 0, 0, 0
    else
        first, second, third, fourth = match(field, '^(%-?%d+) (%d+) (%d+) ?(%d*)$')
        first, second, third, fourth = tonumber(first) or 0, tonumber(second) or 0, tonumber(third) or 0, tonumber(fourth) or 0
    end
    if first + third < 0 or first > END or third > END then
        return 0, 0, 0, 0
    end
    return first, second > END and first or second, third, fourth > MOST and 0 or fourth
end

-- The hash with the authors of a part. All records of a batch have the same prefix.
local stem = string.find(KEYS[1] or '', '}', 1, true) or 0
local function part_of(key, number, mark)
    return string.sub(key, 1, stem) .. '{' .. number .. '.' .. mark .. '}'
end
