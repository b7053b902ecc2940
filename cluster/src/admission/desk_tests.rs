use super::*;
use crate::admission::{Token, Visit};
use crate::{Members, make_identities};
use wire::admission::MachineKey;

/// A directory with an authority and the first machine, and its desk at an address.
struct Place(PathBuf, String);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-desk-{name}-{}", std::process::id()));
        let first = ("node1".to_string(), vec!["127.0.0.1".to_string()]);
        make_identities(&path, &Members { members: vec![first], operators: vec![] }).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let desk = Desk::open(&path, &path.join("node1")).unwrap();
        std::thread::spawn(move || desk.serve(&listener, |_| {}));
        Self(path, address)
    }

    fn token(&self, kind: Kind, uses: u32, length: u64) -> Token {
        let register = Register::open(&self.0).unwrap();
        register.new_token(&self.1, kind, uses, Duration::from_secs(length)).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn ask(token: &Token, name: &str, key: &MachineKey, address: &str) -> Result<Admitted, String> {
    let host = if address.contains(':') { format!("[{address}]") } else { address.into() };
    let target = format!("store://{host}:7701/disk0");
    let visit = Visit::begin(token.clone()).map_err(|why| why.to_string())?;
    let asked = visit.ask(name, vec![address.into()], vec![target], key);
    asked.map(|(admitted, _)| admitted).map_err(|why| why.to_string())
}

#[test]
fn a_token_admits_as_many_machines_as_it_is_for() {
    let place = Place::new("uses");
    let (token, key) = (place.token(Kind::Server, 2, 3600), MachineKey::generate().unwrap());
    let admitted = ask(&token, "node2", &key, "10.0.0.2").unwrap();
    let text = std::fs::read_to_string(place.0.join(KEY_FILE)).unwrap();
    assert_eq!(admitted.cluster_key.as_deref(), Some(&*text));
    assert_eq!(std::fs::read_to_string(place.0.join("node2.pem")).unwrap(), admitted.certificate);
    // Who did not hear the answer asks again; that is no second machine.
    assert!(ask(&token, "node2", &key, "10.0.0.2").is_ok());
    let other = MachineKey::generate().unwrap();
    let refused = ask(&token, "node2", &other, "10.0.0.9").err().unwrap();
    assert!(refused.contains("a member node2 already"), "{refused}");
    let refused = ask(&token, "node3", &other, "10.0.0.2").err().unwrap();
    assert!(refused.contains("another machine has the address"), "{refused}");
    assert!(ask(&token, "node3", &other, "10.0.0.3").is_ok());
    let refused = ask(&token, "node4", &MachineKey::generate().unwrap(), "10.0.0.4").err().unwrap();
    assert!(refused.contains("used up"), "{refused}");
    let names: Vec<String> =
        Register::open(&place.0).unwrap().machines().unwrap().into_iter().map(|machine| machine.name).collect();
    assert_eq!(names, ["node2", "node3"]);
}

#[test]
fn a_client_gets_no_key_of_the_cluster_and_no_address() {
    let place = Place::new("client");
    for (kind, name) in [(Kind::Client, "laptop"), (Kind::Operator, "admin")] {
        let admitted = ask(&place.token(kind, 1, 3600), name, &MachineKey::generate().unwrap(), "10.0.0.1").unwrap();
        assert!(admitted.cluster_key.is_none() && admitted.kind == kind);
        let names = wire::names_in(&place.0.join(format!("{name}.pem"))).unwrap();
        assert_eq!(names.iter().any(|name| name == OPERATOR), kind == Kind::Operator, "{names:?}");
    }
    let machines = Register::open(&place.0).unwrap().machines().unwrap();
    assert!(machines.iter().all(|machine| machine.addresses.is_empty() && machine.targets.is_empty()));
}

#[test]
fn other_tokens_and_names_are_refused() {
    let place = Place::new("refused");
    let key = MachineKey::generate().unwrap();
    let over = ask(&place.token(Kind::Server, 1, 0), "node2", &key, "10.0.0.2").err().unwrap();
    assert!(over.contains("has expired"), "{over}");
    let mut wrong = place.token(Kind::Server, 1, 3600);
    wrong.secret = "0".repeat(32);
    let refused = ask(&wrong, "node2", &key, "10.0.0.2").err().unwrap();
    assert!(refused.contains("not known here") && !refused.contains(&wrong.secret), "{refused}");
    let mut elsewhere = place.token(Kind::Server, 1, 3600);
    elsewhere.fingerprint = "0".repeat(64);
    let refused = ask(&elsewhere, "node2", &key, "10.0.0.2").err().unwrap();
    assert!(refused.contains("not of the cluster"), "{refused}");
    let token = place.token(Kind::Server, 1, 3600);
    for name in ["node1", "authority", "cluster", "../x", "10.0.0.2", ""] {
        assert!(ask(&token, name, &key, "10.0.0.2").is_err(), "{name}");
    }
    let visit = Visit::begin(token.clone()).unwrap();
    let foreign = visit.ask("node2", vec!["10.0.0.2".into()], vec!["store://10.0.0.1:1/d".into()], &key);
    assert!(foreign.err().unwrap().to_string().contains("not at an address of node2"));
    for address in ["*.example", "10.0.0.2,10.0.0.3", "a b", OPERATOR] {
        assert!(ask(&token, "node2", &key, address).is_err(), "{address}");
    }
    // The secret is nowhere on the disk.
    for entry in std::fs::read_dir(place.0.join("admission")).unwrap().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        assert!(!text.contains(&token.secret), "{}", entry.path().display());
    }
    assert!(ask(&token, "node2", &key, "10.0.0.2").is_ok());
}

#[test]
fn a_used_up_token_is_good_for_who_used_it_alone() {
    let place = Place::new("again");
    let (token, key) = (place.token(Kind::Server, 1, 3600), MachineKey::generate().unwrap());
    assert!(ask(&token, "node2", &key, "10.0.0.2").is_ok());
    let machines = || Register::open(&place.0).unwrap().machines().unwrap();
    let (known, certificate) = (machines(), std::fs::read(place.0.join("node2.pem")).unwrap());
    // Name and public key are what everybody sees who connects to the machine.
    let thief = MachineKey { key: MachineKey::generate().unwrap().key, public: key.public.clone() };
    let refused = ask(&token, "node2", &thief, "10.0.0.2").err().unwrap();
    assert!(refused.contains("does not prove"), "{refused}");
    // Its own key is good for no other address and no other name.
    for (name, address) in [("node2", "10.0.0.7"), ("node7", "10.0.0.2"), ("node7", "10.0.0.7")] {
        let refused = ask(&token, name, &key, address).err().unwrap();
        assert!(refused.contains("used up"), "{name} {address}: {refused}");
    }
    // What a client token made gets no more by a server token that others used up.
    let laptop = MachineKey::generate().unwrap();
    let client = place.token(Kind::Client, 1, 3600);
    assert!(ask(&client, "laptop", &laptop, "10.0.0.8").is_ok());
    let refused = ask(&token, "laptop", &laptop, "10.0.0.8").err().unwrap();
    assert!(refused.contains("used up"), "{refused}");
    // Nor by one that is good.
    let another = place.token(Kind::Server, 1, 3600);
    let refused = ask(&another, "laptop", &laptop, "10.0.0.8").err().unwrap();
    assert!(refused.contains("a member laptop already"), "{refused}");
    assert_eq!(machines()[..1], known);
    assert_eq!(std::fs::read(place.0.join("node2.pem")).unwrap(), certificate);
    // Who has the key, and another token, may come again.
    assert!(ask(&another, "node2", &key, "10.0.0.7").is_ok());
    assert!(ask(&place.token(Kind::Client, 0, 3600), "laptop", &laptop, "10.0.0.8").is_err());
}

#[test]
fn nobody_gets_a_name_or_an_address_of_another() {
    let place = Place::new("names");
    let by_hand = |name: &str, addresses: &[&str]| {
        (name.to_string(), addresses.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let members = vec![by_hand("store1", &["10.0.0.5", "Store1.Example", "2001:db8::5"])];
    make_identities(&place.0, &Members { members, operators: vec!["admin".into()] }).unwrap();
    let server = place.token(Kind::Server, 8, 3600);
    // Certificates of others do not count, nor do files that are no certificates.
    let foreign = wire::certificates::new_authority().unwrap();
    let foreign = wire::certificates::new_node(&foreign.key, "node3.example", &[]).unwrap();
    for (name, text) in [("gateway.pem", &*foreign.certificate), ("other.pem", "no certificate")] {
        std::fs::write(place.0.join(name), text).unwrap();
    }
    assert!(ask(&server, "node2", &MachineKey::generate().unwrap(), "2001:db8::2").is_ok());
    let named = MachineKey::generate().unwrap();
    assert!(ask(&server, "node3", &named, "node3.example").is_ok());
    for kind in [Kind::Client, Kind::Server] {
        let token = place.token(kind, 8, 3600);
        for name in ["store1.example", "STORE1", "NODE1", "node3.Example", "Admin"] {
            let refused = ask(&token, name, &MachineKey::generate().unwrap(), "10.0.0.9").err().unwrap();
            assert!(refused.contains("a name or an address of the member"), "{name}: {refused}");
        }
    }
    for address in ["10.0.0.5", "2001:DB8:0::5", "2001:DB8::2", "::ffff:10.0.0.5", "STORE1", "Node3.example", "node2"] {
        let refused = ask(&server, "node4", &MachineKey::generate().unwrap(), address).err().unwrap();
        assert!(refused.contains("has the address"), "{address}: {refused}");
    }
    // And the certificate of a client is for no server.
    let client = place.token(Kind::Client, 1, 3600);
    let key = MachineKey::generate().unwrap();
    let admitted = ask(&client, "laptop", &key, "10.0.0.9").unwrap();
    let write = |ending: &str, text: &str| {
        let path = place.0.join(format!("copy.{ending}"));
        whole::replace(&path, text, 0o600).unwrap();
        path
    };
    let (pem, key) = (write("pem", &admitted.certificate), write("key", &key.key));
    let tls = AdmissionTls::from_files(&place.0.join("authority.pem"), &pem, &key).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        wire::admission::channel_binding(&mut tls.accept(listener.accept().unwrap().0).unwrap()).is_ok()
    });
    let authority = std::fs::read_to_string(place.0.join("authority.pem")).unwrap();
    let mut stream = wire::admission::pinned(&authority, "laptop", TcpStream::connect(address).unwrap()).unwrap();
    assert!(wire::admission::channel_binding(&mut stream).is_err(), "a client passes for a server");
    drop(stream);
    let _ = serving.join().unwrap();
}

#[test]
fn what_a_crash_left_of_a_certificate_is_written_again() {
    let place = Place::new("crash");
    let (token, key) = (place.token(Kind::Server, 1, 3600), MachineKey::generate().unwrap());
    assert!(ask(&token, "node2", &key, "10.0.0.2").is_ok());
    let certificate = place.0.join("node2.pem");
    for left in [None, Some("")] {
        std::fs::remove_file(&certificate).unwrap();
        if let Some(text) = left {
            std::fs::write(&certificate, text).unwrap();
        }
        let admitted = ask(&token, "node2", &key, "10.0.0.2").unwrap();
        assert_eq!(std::fs::read_to_string(&certificate).unwrap(), admitted.certificate);
    }
}

#[test]
fn a_machine_that_was_forgotten_can_join_with_another_key() {
    let place = Place::new("forget");
    let token = place.token(Kind::Server, 2, 3600);
    assert!(ask(&token, "node2", &MachineKey::generate().unwrap(), "10.0.0.2").is_ok());
    let new = MachineKey::generate().unwrap();
    let refused = ask(&token, "node2", &new, "10.0.0.2").err().unwrap();
    assert!(refused.contains("weft cluster forget node2"), "{refused}");
    assert!(Register::open(&place.0).unwrap().forget("node9").is_err());
    assert!(Register::open(&place.0).unwrap().forget("node1").is_err(), "made by init");
    assert_eq!(Register::open(&place.0).unwrap().forget("node2").unwrap(), Kind::Server);
    assert!(!place.0.join("node2.pem").exists());
    assert!(ask(&token, "node2", &new, "10.0.0.2").is_ok());
}
