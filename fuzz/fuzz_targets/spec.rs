//! A code's spec comes from command lines and from fragment headers.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(spec) = text.parse::<ec::Spec>() {
        assert_eq!(spec.to_string().parse::<ec::Spec>().unwrap(), spec);
    }
});
