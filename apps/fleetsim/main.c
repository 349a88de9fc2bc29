/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    struct reference_row *rows;
    size_t n;
    weir_error e;
    if (reference_read(argv[1], &rows, &n, &e)) {
        puts(e.message);
        return 1;
    }
    reference_print_head();
    for (size_t i = 0; i < n; i++) {
        struct sim_result r;
        if (reference_run(&rows[i], argc > 2 ? (uint64_t) atoi(argv[2]) : 1, &r, &e)) {
            puts(e.message);
            return 1;
        }
        reference_print_row(&rows[i], &r);
    }
    free(rows);
    return 0;
}
