//! The bytes of Python objects, without a copy: `bytes`, `bytearray`, `memoryview`, arrays of numpy
//! and whatever else has a contiguous buffer.
//!
//! The only `unsafe` of this crate. A buffer that is exported stays where it is until it is
//! released, so a slice of it is valid for as long. What the types cannot say is that other threads
//! of the program leave the bytes alone while a call works on them: Python's own `readinto`, `zlib`
//! and numpy ask the same of their callers.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Bytes to read.
pub struct Source(PyUntypedBuffer);

/// Bytes to fill.
pub struct Room(PyUntypedBuffer);

/// The contiguous buffer of an object.
fn contiguous(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    match buffer.is_c_contiguous() {
        true => Ok(buffer),
        false => Err(PyValueError::new_err("the buffer is not contiguous in memory; copy it first")),
    }
}

impl Source {
    /// The bytes of an object.
    ///
    /// # Errors
    /// `TypeError` when it has no buffer, `ValueError` when that is not contiguous.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        contiguous(object).map(Self)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self.0.len_bytes() {
            0 => &[],
            // SAFETY: the exporter keeps that many bytes there until the buffer is released, which
            // is when `self` is dropped.
            length => unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), length) },
        }
    }
}

impl Room {
    /// The bytes of an object that can be changed.
    ///
    /// # Errors
    /// As [`Source::of`], and `ValueError` when it is read-only.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = contiguous(object)?;
        match buffer.readonly() {
            false => Ok(Self(buffer)),
            true => Err(PyValueError::new_err("the buffer is read-only")),
        }
    }

    /// Where its bytes are, for a comparison with others.
    pub fn span(&self) -> std::ops::Range<usize> {
        let begin = self.0.buf_ptr() as usize;
        begin..begin + self.0.len_bytes()
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        match self.0.len_bytes() {
            0 => &mut [],
            // SAFETY: as in `Source::bytes`; the exporter says that they may be written, and
            // `&mut self` is the only way to them through this export.
            length => unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), length) },
        }
    }
}
