-- SPDX-License-Identifier: Apache-2.0
-- What is in use of one record. Nothing is written.
--
-- KEYS[1]  the record
-- ARGV     fleet time (microseconds)
-- Returns  {1: the user may not run HMGET, HGET or ZCARD; 0, units (rounded up)}
-- include common.lua
-- include fields.lua
-- include use.lua
local units, refused = use_of(KEYS[1], tonumber(ARGV[1]))
return refused and {1} or {0, units or 0}
