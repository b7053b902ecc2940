//! One kernel per instruction set: thin shells that enable the instructions and run the algorithms
//! of `simd`.

mod avx2;
mod avx512;
mod gfni_avx2;
mod gfni_avx512;
mod ssse3;

use crate::dyadic::Dyadic;
use crate::erasure::Erasure;
use crate::factors::{Expand, Factors};
use crate::grouped::{Grouped, Way};
use crate::isa::Isa;
use crate::kernel::{Kernel, check};
use crate::simd::{Tail, dyadic, erasure, in_steps, registers, simple, streamable, tile};
use crate::vector::Vector;
use std::ops::Range;

macro_rules! kernel {
    ($kernel:ident, $vector:ty, $doc:literal, $features:literal, [$($feature:tt),+], $private:ident) => {
        #[doc = $doc]
        pub struct $kernel(());

        impl $kernel {
            /// The kernel, if this processor says that it has the instructions.
            pub fn new() -> Option<Self> {
                (true $(&& std::arch::is_x86_feature_detected!($feature))+).then_some(Self(()))
            }

            /// # Safety
            /// The processor runs the instructions although it does not say so: see `select`, which
            /// probes.
            #[allow(dead_code, reason = "only kernels whose feature may be hidden are probed")]
            pub(crate) unsafe fn assume() -> Self {
                Self(())
            }

            /// Runs one instruction of each feature; for the probe.
            ///
            /// # Safety
            /// May raise an illegal instruction.
            #[target_feature(enable = $features)]
            #[allow(dead_code, reason = "as above")]
            pub(crate) unsafe fn try_instructions() -> bool {
                let bytes = [7u8; 64];
                let mut expanded = [0u8; 64];
                <$vector>::expand(3, &mut expanded[..<$vector>::FACTOR_BYTES]);
                let mut out = [0u8; 64];
                let v = <$vector>::load(bytes.as_ptr());
                let product = v.double().mul_add(v.split(), <$vector>::factor(expanded.as_ptr()));
                product.xor3(v, v).store(out.as_mut_ptr());
                out[0] == crate::field::mul(7, 2) ^ crate::field::mul(7, 3)
            }
        }

        /// The algorithms with the instructions enabled. Their contracts are those of the generic
        /// ones.
        mod $private {
            use super::*;
            #[target_feature(enable = $features)]
            pub(super) unsafe fn xor(inputs: &[&[u8]], output: &mut [u8], at: Range<usize>) {
                simple::xor::<$vector>(inputs, output, at)
            }
            #[target_feature(enable = $features)]
            pub(super) unsafe fn multiply_add(f: &Factors, input: &[u8], outputs: &mut [&mut [u8]], at: Range<usize>) {
                simple::multiply_add::<$vector>(f.at(Isa::$kernel, 0), input, outputs, at)
            }
            #[target_feature(enable = $features)]
            pub(super) unsafe fn registers(
                m: &Grouped, i: &[&[u8]], o: &mut [&mut [u8]], at: Range<usize>, past: bool,
            ) {
                registers::grouped::<$vector>(m, Isa::$kernel, i, o, at, past)
            }
            #[target_feature(enable = $features)]
            pub(super) unsafe fn tile(m: &Grouped, i: &[&[u8]], o: &mut [&mut [u8]], at: Range<usize>, past: bool) {
                tile::grouped::<$vector>(m, Isa::$kernel, i, o, at, past)
            }
            #[target_feature(enable = $features)]
            pub(super) unsafe fn dyadic(m: &Dyadic, i: &[&[u8]], o: &mut [&mut [u8]], at: Range<usize>, past: bool) {
                dyadic::dyadic::<$vector>(m, Isa::$kernel, i, o, at, past)
            }
            #[target_feature(enable = $features)]
            pub(super) unsafe fn erasure(m: &Erasure, i: &[&[u8]], o: &mut [&mut [u8]], at: Range<usize>) {
                erasure::erasure::<$vector>(m, Isa::$kernel, i, o, at)
            }
            #[target_feature(enable = $features)]
            pub(super) unsafe fn pq(inputs: &[&[u8]], p: &mut [u8], q: &mut [u8], at: Range<usize>) {
                simple::pq::<$vector>(inputs, p, q, at)
            }
        }

        impl crate::factors::sealed::Sealed for $kernel {}

        impl Expand for $kernel {
            fn factors(&self, values: &[u8]) -> Factors {
                Factors::new(Isa::$kernel, <$vector>::FACTOR_BYTES, values, <$vector>::expand)
            }
        }

        // SAFETY (all calls below): `Self` exists only where the instructions run, `check` and
        // `check_blocks` hold every block and index to the range, and `in_steps` and `streamable`
        // pass whole steps only.
        #[allow(clippy::undocumented_unsafe_blocks)]
        impl Kernel for $kernel {
            fn isa(&self) -> Isa {
                Isa::$kernel
            }

            fn xor(&self, inputs: &[&[u8]], output: &mut [u8], at: Range<usize>) {
                check(inputs, &[&mut *output], &at);
                in_steps(simple::xor_step::<$vector>(), Tail::Overlap, inputs, &mut [output], at, |i, o, at| unsafe {
                    $private::xor(i, o[0], at)
                });
            }

            fn multiply_add(&self, factors: &Factors, input: &[u8], outputs: &mut [&mut [u8]], at: Range<usize>) {
                check(&[input], outputs, &at);
                assert_eq!(factors.values().len(), outputs.len(), "one factor for each output");
                in_steps(<$vector>::BYTES, Tail::Copy, &[input], outputs, at, |i, o, at| unsafe {
                    $private::multiply_add(factors, i[0], o, at)
                });
            }

            fn grouped(&self, map: &Grouped, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>) {
                check(inputs, outputs, &at);
                map.check_blocks(inputs.len(), outputs.len());
                match map.way() {
                    Way::Registers => {
                        in_steps(registers::step::<$vector>(), Tail::Overlap, inputs, outputs, at, |i, o, at| unsafe {
                            $private::registers(map, i, o, at, false)
                        });
                    }
                    Way::Tile { .. } => {
                        in_steps(tile::STEP_BYTES, Tail::Overlap, inputs, outputs, at, |i, o, at| unsafe {
                            $private::tile(map, i, o, at, false)
                        });
                    }
                }
            }

            fn grouped_streaming(&self, map: &Grouped, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>) {
                check(inputs, outputs, &at);
                map.check_blocks(inputs.len(), outputs.len());
                // Halves of lines, stored between shuffles that keep the processor busy anyway,
                // were rather slower.
                let gains = <$vector>::BYTES >= 64 || map.way() != Way::Registers;
                let Some(lines) = streamable(outputs, &at).filter(|_| gains && map.stores_once()) else {
                    return self.grouped(map, inputs, outputs, at);
                };
                self.grouped(map, inputs, outputs, at.start..lines.start);
                self.grouped(map, inputs, outputs, lines.end..at.end);
                unsafe {
                    match map.way() {
                        Way::Registers => $private::registers(map, inputs, outputs, lines, true),
                        Way::Tile { .. } => $private::tile(map, inputs, outputs, lines, true),
                    }
                    // Other threads that learn of the outputs must see them.
                    core::arch::x86_64::_mm_sfence();
                }
            }

            fn dyadic(&self, map: &Dyadic, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>) {
                check(inputs, outputs, &at);
                map.check_blocks(inputs.len(), outputs.len());
                in_steps(dyadic::step::<$vector>(), Tail::Overlap, inputs, outputs, at, |i, o, at| unsafe {
                    $private::dyadic(map, i, o, at, false)
                });
            }

            fn dyadic_streaming(&self, map: &Dyadic, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>) {
                check(inputs, outputs, &at);
                map.check_blocks(inputs.len(), outputs.len());
                // As in `grouped_streaming`.
                let gains = <$vector>::BYTES >= 64;
                let Some(lines) = streamable(outputs, &at).filter(|_| gains) else {
                    return self.dyadic(map, inputs, outputs, at);
                };
                self.dyadic(map, inputs, outputs, at.start..lines.start);
                self.dyadic(map, inputs, outputs, lines.end..at.end);
                unsafe {
                    $private::dyadic(map, inputs, outputs, lines, true);
                    core::arch::x86_64::_mm_sfence();
                }
            }

            fn erasure(&self, map: &Erasure, inputs: &[&[u8]], outputs: &mut [&mut [u8]], at: Range<usize>) {
                check(inputs, outputs, &at);
                map.check_blocks(inputs.len(), outputs.len());
                in_steps(erasure::WIDTH, Tail::Overlap, inputs, outputs, at, |i, o, at| unsafe {
                    $private::erasure(map, i, o, at)
                });
            }

            fn pq(&self, inputs: &[&[u8]], p: &mut [u8], q: &mut [u8], at: Range<usize>) {
                check(inputs, &[&mut *p, &mut *q], &at);
                in_steps(simple::xor_step::<$vector>(), Tail::Overlap, inputs, &mut [p, q], at, |i, o, at| unsafe {
                    let [p, q] = o else { unreachable!("two outputs in, two out") };
                    $private::pq(i, p, q, at)
                });
            }
        }
    };
}

kernel!(Ssse3, ssse3::Ssse3, "Nibble shuffles on 16 bytes.", "ssse3", ["ssse3"], ssse3_code);
kernel!(Avx2, avx2::Avx2, "Nibble shuffles on 32 bytes.", "avx2", ["avx2"], avx2_code);
kernel!(
    Avx512,
    avx512::Avx512,
    "Nibble shuffles on 64 bytes.",
    "avx512f,avx512bw",
    ["avx512f", "avx512bw"],
    avx512_code
);
kernel!(GfniAvx2, gfni_avx2::GfniAvx2, "Affine products on 32 bytes.", "gfni,avx2", ["gfni", "avx2"], gfni_avx2_code);
kernel!(
    GfniAvx512,
    gfni_avx512::GfniAvx512,
    "Affine products on 64 bytes.",
    "gfni,avx512f,avx512bw",
    ["gfni", "avx512f", "avx512bw"],
    gfni_avx512_code
);
