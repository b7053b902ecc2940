//! Which kernels run here and which one is used: chosen once by CPUID, or forced by `WEFT_KERNEL`.
//!
//! Some virtual machines hide features that the processor runs. A forced kernel that CPUID does not
//! list is therefore probed in a child process, which an illegal instruction may kill without harm.

use crate::isa::{Isa, UnknownIsa};
use crate::kernel::Kernel;
use crate::naive::Naive;
use crate::plain::Plain;
use std::fmt;
use std::sync::OnceLock;

/// The environment variable that forces a kernel.
pub const FORCE_VARIABLE: &str = "WEFT_KERNEL";

/// One kernel and how it stands on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Availability {
    /// Its instruction set.
    pub isa: Isa,
    /// The kernel, if the processor lists its features.
    pub listed: Option<&'static dyn Kernel>,
}

/// All kernels that this build has, slowest first.
pub fn all() -> Vec<Availability> {
    let mut kernels = vec![
        Availability { isa: Isa::Naive, listed: Some(&Naive) },
        Availability { isa: Isa::Plain, listed: Some(&Plain) },
    ];
    #[cfg(target_arch = "x86_64")]
    {
        use crate::x86::*;
        macro_rules! list {
            ($($kernel:ident),+) => {$({
                static KERNEL: OnceLock<Option<$kernel>> = OnceLock::new();
                let listed = KERNEL.get_or_init($kernel::new).as_ref().map(|k| k as &dyn Kernel);
                kernels.push(Availability { isa: Isa::$kernel, listed });
            })+};
        }
        list!(Ssse3, Avx2, Avx512, GfniAvx2, GfniAvx512);
    }
    kernels
}

/// The kernels whose tests can run here: those that CPUID lists, slowest first.
pub fn listed() -> Vec<&'static dyn Kernel> {
    all().into_iter().filter_map(|k| k.listed).collect()
}

/// Why a kernel is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoKernel {
    /// No kernel has this name.
    Unknown(UnknownIsa),
    /// This processor does not run it, or this build does not have it.
    NotHere(Isa),
    /// [`FORCE_VARIABLE`] asks for what is not available.
    Forced(Box<NoKernel>),
}

impl fmt::Display for NoKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(why) => why.fmt(f),
            Self::NotHere(isa) => write!(f, "this processor does not run the kernel {:?}", isa.name()),
            Self::Forced(why) => write!(f, "{FORCE_VARIABLE}: {why}"),
        }
    }
}

impl std::error::Error for NoKernel {}

impl From<UnknownIsa> for NoKernel {
    fn from(why: UnknownIsa) -> Self {
        Self::Unknown(why)
    }
}

/// The kernel of an instruction set, probed in a child process when CPUID hides it.
///
/// # Errors
/// When it does not run here.
pub fn kernel(isa: Isa) -> Result<&'static dyn Kernel, NoKernel> {
    let listed = all().into_iter().find(|k| k.isa == isa).and_then(|k| k.listed);
    listed.or_else(|| probed(isa)).ok_or(NoKernel::NotHere(isa))
}

/// The kernel in use: `WEFT_KERNEL` if it is set, else the best that CPUID lists.
///
/// ```
/// let kernel = weft_gf::select::chosen()?;
/// let mut sum = [0; 4];
/// kernel.xor(&[&[1, 2, 3, 4], &[4, 4, 4, 4]], &mut sum, 0..4);
/// assert_eq!(sum, [5, 6, 7, 0]);
/// # Ok::<(), weft_gf::select::NoKernel>(())
/// ```
///
/// # Errors
/// When `WEFT_KERNEL` names a kernel that does not exist or does not run here.
pub fn chosen() -> Result<&'static dyn Kernel, NoKernel> {
    static CHOSEN: OnceLock<Result<&'static dyn Kernel, NoKernel>> = OnceLock::new();
    CHOSEN
        .get_or_init(|| match std::env::var(FORCE_VARIABLE) {
            Ok(name) if !name.is_empty() => (name.parse::<Isa>().map_err(NoKernel::from))
                .and_then(kernel)
                .map_err(|why| NoKernel::Forced(Box::new(why))),
            _ => Ok(*listed().last().expect("two kernels are always there")),
        })
        .clone()
}

#[cfg(not(all(unix, target_arch = "x86_64")))]
fn probed(_: Isa) -> Option<&'static dyn Kernel> {
    None
}

#[cfg(all(unix, target_arch = "x86_64"))]
fn probed(isa: Isa) -> Option<&'static dyn Kernel> {
    use crate::x86::*;
    macro_rules! probe {
        ($kernel:ident) => {{
            static KERNEL: OnceLock<Option<$kernel>> = OnceLock::new();
            let kernel = KERNEL.get_or_init(|| {
                // SAFETY: the instructions run in the child only; `assume` follows only when they
                // ran there.
                unsafe { survives_in_child(|| $kernel::try_instructions()).then(|| $kernel::assume()) }
            });
            kernel.as_ref().map(|k| k as &'static dyn Kernel)
        }};
    }
    // An operating system that does not save the wide registers would corrupt them silently, so
    // what it enables (XCR0, which these detections include) is required; only the instruction
    // itself may be hidden.
    match isa {
        Isa::GfniAvx2 if std::arch::is_x86_feature_detected!("avx2") => probe!(GfniAvx2),
        Isa::GfniAvx512 if std::arch::is_x86_feature_detected!("avx512bw") => probe!(GfniAvx512),
        _ => None,
    }
}

/// Whether `attempt` returns true in a forked child; a signal that kills the child counts as false.
#[cfg(all(unix, target_arch = "x86_64"))]
fn survives_in_child(attempt: impl FnOnce() -> bool) -> bool {
    // SAFETY: between fork and _exit the child runs only `attempt`, which computes on its stack,
    // and async-signal-safe calls; the parent waits for that very child.
    unsafe {
        match libc::fork() {
            -1 => false,
            0 => {
                libc::signal(libc::SIGILL, libc::SIG_DFL);
                libc::_exit(if attempt() { 0 } else { 1 })
            }
            child => {
                let mut status = 0;
                while libc::waitpid(child, &mut status, 0) == -1 {
                    if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                        return false;
                    }
                }
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
            }
        }
    }
}

// What runs a kernel is tested in `tests`: a test here that refers to kernels has them compiled
// once more, which takes minutes.
#[cfg(all(test, unix, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn an_illegal_instruction_kills_only_the_child() {
        assert!(survives_in_child(|| true));
        assert!(!survives_in_child(|| false));
        // SAFETY: UD2 raises SIGILL, in the child.
        assert!(!survives_in_child(|| unsafe {
            std::arch::asm!("ud2");
            true
        }));
    }
}
