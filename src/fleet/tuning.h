/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of the fleet layer that were chosen by measurement. */
#ifndef WEIR_FLEET_TUNING_H
#define WEIR_FLEET_TUNING_H

/* A surprise is worth asking at once if it is this part of the headroom. */
#define URGENT_THRESHOLD_DIVISOR 8

/* Demand that has changed by this factor is asked for sooner, for so many intervals. */
#define CHANGE_FACTOR    2
#define CHANGE_INTERVALS 4

/* For this part of an interval a beginning is waited out; and demand is learned from answers an interval less it apart.
 */
#define WAIT_DIVISOR 4

/* A key whose news can wait has its turn every so many intervals; and is told of at the latest after so many. */
#define SCAN_INTERVALS 16
#define AGE_INTERVALS  150

#endif
