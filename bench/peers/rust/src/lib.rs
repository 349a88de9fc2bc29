// SPDX-License-Identifier: Apache-2.0
//! Limiters of the Rust world behind C functions. Each `*_run` is the whole loop, so that a check is a call of Rust
//! from Rust, inlined as its authors meant it.

#![allow(clippy::missing_safety_doc)] // said once, at the first

mod governor_peers;
#[cfg(feature = "limitador")]
mod limitador_peers;

use std::ffi::c_void;
use std::time::Duration;

use pingora_limits::rate::Rate;

/// `struct peer_limit`.
#[repr(C)]
pub struct Limit {
    units: u64,
    period_ns: u64,
    burst: u64,
}

/// `struct peer_draws`.
#[repr(C)]
pub struct Draws {
    numbers: *const u32,
    mask: usize,
    next: usize,
}

impl Draws {
    /// `peer_next_key`.
    #[inline(always)]
    fn next_key(&mut self) -> [u8; 16] {
        // SAFETY: `numbers` has mask + 1 elements.
        let number = u64::from(unsafe { *self.numbers.add(self.next & self.mask) });
        self.next = self.next.wrapping_add(1);
        key_of(number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number)
    }
}

/// The bytes of a key, written by one store: see `peer_key`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn key_of(low: u64, high: u64) -> [u8; 16] {
    use std::arch::x86_64::_mm_set_epi64x;
    // SAFETY: sixteen bytes both, of which any are valid; every x86-64 processor has the instruction.
    unsafe { std::mem::transmute(_mm_set_epi64x(high.cast_signed(), low.cast_signed())) }
}

/// Elsewhere one store of a pair of registers writes them.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn key_of(low: u64, high: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&low.to_ne_bytes());
    key[8..].copy_from_slice(&high.to_ne_bytes());
    key
}

/// An object for C to keep, or null.
fn give<T>(object: Option<T>) -> *mut c_void {
    object.map_or(std::ptr::null_mut(), |o| Box::into_raw(Box::new(o)).cast())
}

/// A sketch: keys may count for one another, and memory does not grow with them.
struct Counted {
    rate: Rate,
    units: isize,
}

/// # Safety
/// `limit` points to one; so elsewhere, where `object` also comes from the function named `*_new`.
#[no_mangle]
pub unsafe extern "C" fn peer_rust_pingora_new(limit: *const Limit) -> *mut c_void {
    let limit = &*limit;
    give(
        isize::try_from(limit.units)
            .ok()
            .map(|units| Counted { rate: Rate::new(Duration::from_nanos(limit.period_ns)), units }),
    )
}

#[no_mangle]
pub unsafe extern "C" fn peer_rust_pingora_run(object: *const c_void, draws: *mut Draws, count: u64) -> u64 {
    let counted = &*object.cast::<Counted>();
    let draws = &mut *draws;
    (0..count).map(|_| u64::from(counted.rate.observe(&draws.next_key(), 1) <= counted.units)).sum()
}

#[no_mangle]
pub unsafe extern "C" fn peer_rust_pingora_free(object: *mut c_void) {
    drop(Box::from_raw(object.cast::<Counted>()));
}
