/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the report of a bucket; see report_bucket.c. */
#ifndef WEIR_FLEET_KEYS_REPORT_BUCKET_H
#define WEIR_FLEET_KEYS_REPORT_BUCKET_H

struct account;
struct fleet;
struct reading;
struct report_subject;

void report_bucket_add(struct fleet *fleet, const struct report_subject *subject, const struct reading *reading,
                       const struct account *account);

#endif
