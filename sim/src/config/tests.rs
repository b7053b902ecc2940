use super::*;

#[test]
fn an_empty_file_is_a_simulation() {
    let config = Config::parse("").unwrap();
    assert_eq!((config.stores(), config.volume.width()), (32, 8));
    assert_eq!(config, Config::default());
}

#[test]
fn sizes_have_units() {
    let config = Config::parse("[volume]\nchunk = \"8MiB\"\n[cluster]\ndisk = 4194304\n").unwrap();
    assert_eq!((config.volume.chunk, config.cluster.disk), (Bytes(8 << 20), Bytes(4 << 20)));
}

/// Each is refused with one line that names the key.
#[test]
fn what_means_nothing_is_refused() {
    for (text, word) in [
        ("sed = 1", "sed"),
        ("[volume]\nwidth = 3", "width"),
        ("[volume]\nk = 0", "volume.k"),
        ("[volume]\nk = 4294967295", "volume.k"),
        ("[volume]\nk = 60\nm = 60", "k + m"),
        ("[volume]\nsets = 18446744073709551615", "line 2"),
        ("[volume]\nsets = 9000000000000000000", "volume.sets"),
        ("[volume]\nchunk = \"1T\"", "volume.chunk"),
        ("[volume]\nk = 40", "does not fit"),
        ("[volume]\nchunk = \"7 parsecs\"", "parsecs"),
        ("[volume]\npolicy = \"best\"", "best"),
        ("[volume]\ndomain_level = 9", "domain_level"),
        ("[volume.scoring]\na = -1.0\nb = 0.5\nc = 0.5\nd = 0.5\ntau = \"tuned\"", "scoring"),
        ("[cluster]\nstores = 0", "cluster.stores"),
        ("[cluster]\ntorus = [4, 2]", "8 places, and there are 32 stores"),
        ("[cluster]\ntorus = [4, 2, 0]", "torus"),
        ("[cluster]\ntorus = [4, 4, 2]\n[[growth]]\nadd_stores = 1", "33 stores"),
        ("[cluster]\nnetworks = 60000\nrows = 60000\ncabinets = 60000\nstores = 60000", "number of stores"),
        ("[cluster]\ndisk_mb_per_second = nan", "disk_mb_per_second"),
        ("[cluster]\nlink_mb_per_second = inf", "link_mb_per_second"),
        ("[[class]]\npart = 0.7\n[[class]]\npart = 0.7", "parts of all classes"),
        ("[[growth]]\nspread = true", "add_stores and drain"),
        ("[[growth]]\nadd_stores = 4294967295", "after growth"),
        ("[failures]\nyears = 0", "failures.years"),
        ("[failures]\nserver_mtbf_years = -1.0", "server_mtbf_years"),
        ("[failures]\nserver_mtbf_years = 0.0001\nyears = 1000", "more than"),
        ("[failures]\ncorrelated_stores = 40", "correlated_stores"),
        ("[failures]\nrepair_share = 0.0", "repair_share"),
        ("[workload]\nclients = 10000\nwriters = 1000", "clients times writers"),
        ("[workload]\nread_share = 2.0", "read_share"),
        ("[workload", "expected"),
    ] {
        let why = Config::parse(text).unwrap_err();
        assert!(why.contains(word) && !why.contains('\n'), "{text:?}: {why}");
    }
}
