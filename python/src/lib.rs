//! Weft for Python: the module `weft._weft`, on which the package `weft` in `python/weft` stands.
//!
//! Volumes without a mount, files in them, and the erasure codes. Each call that may wait gives the
//! interpreter to other threads.

mod bytes;
mod codes;
mod failure;
mod file;
mod opened;
mod paths;
mod volume;

use pyo3::prelude::*;

/// What `import weft._weft` finds.
#[pymodule]
fn _weft(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<volume::Volume>()?;
    module.add_class::<file::File>()?;
    module.add_class::<codes::Code>()?;
    module.add_function(wrap_pyfunction!(opened::close_all, module)?)?;
    module.add_function(wrap_pyfunction!(codes::families, module)?)
}
