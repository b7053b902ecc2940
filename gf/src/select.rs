//! Which kernels run here and which one is used: chosen once by CPUID, or forced by `WEFT_KERNEL`.
//!
//! Some virtual machines hide features that the processor runs. A forced kernel that CPUID does not list is therefore
//! probed in a child process, which an illegal instruction may kill without harm.

use crate::kernel::Kernel;
use crate::naive::Naive;
use std::sync::OnceLock;

/// The environment variable that forces a kernel.
pub const FORCE_VARIABLE: &str = "WEFT_KERNEL";

/// One kernel and how it stands on this machine.
pub struct Availability {
    /// Its name.
    pub name: &'static str,
    /// The kernel, if the processor lists its features.
    pub listed: Option<&'static dyn Kernel>,
}

/// All kernels that this build knows, slowest first.
pub fn all() -> Vec<Availability> {
    let mut kernels = vec![Availability { name: "naive", listed: Some(&Naive) }];
    #[cfg(target_arch = "x86_64")]
    {
        use crate::x86::*;
        macro_rules! list {
            ($($name:literal => $kernel:ident),+) => {$({
                static KERNEL: OnceLock<Option<$kernel>> = OnceLock::new();
                let listed = KERNEL.get_or_init($kernel::new).as_ref().map(|k| k as &dyn Kernel);
                kernels.push(Availability { name: $name, listed });
            })+};
        }
        list!("ssse3" => Ssse3, "avx2" => Avx2, "avx512" => Avx512, "gfni-avx2" => GfniAvx2, "gfni-avx512" => GfniAvx512);
    }
    kernels
}

/// The kernels whose tests can run here: those that CPUID lists.
pub fn listed() -> Vec<&'static dyn Kernel> {
    all().into_iter().filter_map(|k| k.listed).collect()
}

/// Why a kernel could not be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoKernel(pub String);

impl std::fmt::Display for NoKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoKernel {}

/// The kernel of that name, probed in a child process when CPUID hides it.
///
/// # Errors
/// When there is no kernel of that name, or it does not run here.
pub fn by_name(name: &str) -> Result<&'static dyn Kernel, NoKernel> {
    let kernels = all();
    let Some(found) = kernels.iter().find(|k| k.name == name) else {
        let names: Vec<&str> = kernels.iter().map(|k| k.name).collect();
        return Err(NoKernel(format!("no kernel is called {name:?}; there are {}", names.join(", "))));
    };
    match found.listed {
        Some(kernel) => Ok(kernel),
        None => probed(found.name).ok_or_else(|| NoKernel(format!("this processor does not run the kernel {name:?}"))),
    }
}

/// The kernel in use: `WEFT_KERNEL` if it is set, else the best that CPUID lists.
///
/// # Errors
/// When `WEFT_KERNEL` names a kernel that does not exist or does not run here.
pub fn chosen() -> Result<&'static dyn Kernel, NoKernel> {
    static CHOSEN: OnceLock<Result<&'static dyn Kernel, NoKernel>> = OnceLock::new();
    CHOSEN
        .get_or_init(|| match std::env::var(FORCE_VARIABLE) {
            Ok(name) if !name.is_empty() => by_name(&name).map_err(|e| NoKernel(format!("{FORCE_VARIABLE}: {e}"))),
            _ => Ok(*listed().last().expect("the naive kernel is always there")),
        })
        .clone()
}

#[cfg(not(target_arch = "x86_64"))]
fn probed(_: &str) -> Option<&'static dyn Kernel> {
    None
}

#[cfg(target_arch = "x86_64")]
fn probed(name: &str) -> Option<&'static dyn Kernel> {
    use crate::x86::*;
    macro_rules! probe {
        ($kernel:ident) => {{
            static KERNEL: OnceLock<Option<$kernel>> = OnceLock::new();
            let kernel = KERNEL.get_or_init(|| {
                // SAFETY: the instructions run in the child only; `assume` follows only when they ran there.
                unsafe { survives_in_child(|| $kernel::try_instructions()).then(|| $kernel::assume()) }
            });
            kernel.as_ref().map(|k| k as &'static dyn Kernel)
        }};
    }
    // An operating system that does not save the wide registers would corrupt them silently, so what it enables
    // (XCR0, which these detections include) is required; only the instruction itself may be hidden.
    match name {
        "gfni-avx2" if std::arch::is_x86_feature_detected!("avx2") => probe!(GfniAvx2),
        "gfni-avx512" if std::arch::is_x86_feature_detected!("avx512bw") => probe!(GfniAvx512),
        _ => None,
    }
}

/// Whether `attempt` returns true in a forked child; a signal that kills the child counts as false.
#[cfg(target_arch = "x86_64")]
fn survives_in_child(attempt: impl FnOnce() -> bool) -> bool {
    // SAFETY: between fork and _exit the child runs only `attempt`, which computes on its stack, and
    // async-signal-safe calls; the parent waits for that very child.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn an_illegal_instruction_kills_only_the_child() {
        assert!(survives_in_child(|| true));
        assert!(!survives_in_child(|| false));
        // SAFETY: UD2 raises SIGILL, in the child.
        assert!(!survives_in_child(|| unsafe {
            std::arch::asm!("ud2");
            true
        }));
    }

    #[test]
    fn an_unknown_kernel_is_refused_with_the_names_there_are() {
        let error = by_name("sse9").unwrap_err().to_string();
        assert!(error.contains("sse9") && error.contains("naive"), "{error}");
        assert_eq!(by_name("naive").unwrap().name(), "naive");
    }
}
