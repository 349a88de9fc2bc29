/* SPDX-License-Identifier: Apache-2.0 */
/* Units from the text of a variable, which clients and upstreams write, against sums of the parts between separators.
 */
#include "../../apps/nginx/units.h"
#include "fuzz.h"
#include "weir/weir.h"

/* One number, or "-". False: it is neither. */
static bool read_part(const char *text, size_t length, uint64_t *out)
{
    const size_t whole = strspn(text, "0123456789");
    const bool has_dot = text[whole] == '.';
    const size_t behind = has_dot ? strspn(text + whole + 1, "0123456789") : 0;
    *out = 0;
    if (length == 1 && text[0] == '-') {
        return true;
    }
    for (size_t i = 0; i < whole; i++) {
        *out = 10 * *out + (uint64_t) (text[i] - '0');
        *out = *out < WEIR_MAX_UNITS ? *out : WEIR_MAX_UNITS;
    }
    *out += strspn(text + whole + has_dot, "0") < behind;
    return whole != 0 && whole + has_dot + behind == length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    uint64_t units = 7, wanted = 0;
    bool good = true;
    char *text = input_part(&in, NULL, &size);
    const bool read = units_read((const unsigned char *) text, size, &units);
    char *copy = calloc(1, size + 1);
    CHECK(copy != NULL);
    memcpy(copy, text, size);
    for (size_t at = 0; at < size;) {
        const size_t length = strcspn(copy + at, ",: ");
        uint64_t part = 0;
        good = good && (length == 0 || read_part(copy + at, length, &part));
        wanted = wanted + part < WEIR_MAX_UNITS ? wanted + part : WEIR_MAX_UNITS;
        good = good && (at + length == size || copy[at + length] != '\0');
        at += length + 1;
    }
    CHECK(read == good && units == (good ? wanted : 7));
    free(copy);
    input_free(text);
    return 0;
}
