//! The QMP monitors that QEMU's options promise, in every form they take.
//!
//! ```text
//!   -qmp unix:PATH,server=on    -qmp-pretty tcp:HOST:PORT,server    -qmp chardev:ID
//!   -chardev socket,id=ID,path=PATH,server=on     (or host=,port=)  -mon chardev=ID,mode=control    (or -mon ID,mode=control)
//!   -readconfig FILE, with [chardev "ID"] and [mon]
//! ```
//!
//! One that listens can be asked. A socket without `server` is QEMU's own connection to somebody; one that was handed
//! over as a file descriptor (`fd=`, as libvirt does) is somebody's who keeps it to himself; `-monitor` is for people.

use super::address::MonitorAddress;
use super::command_line::{Properties, QemuOptions};

/// Monitors that are asked: each may take its time.
const MOST_MONITORS: usize = 4;

/// Where QMP is promised; paths as QEMU was given them.
pub(super) fn monitors(options: &QemuOptions<'_>) -> Vec<MonitorAddress> {
    let devices = options.all("chardev", "backend");
    let device = |id: &[u8]| devices.iter().find(|device| device.get("id") == Some(id)).and_then(of_device);
    let given = ["qmp", "qmp-pretty"].into_iter().flat_map(|option| options.arguments().values(option));
    let given = given.filter_map(|value| match value.strip_prefix(b"chardev:") {
        Some(id) => device(id),
        None => of_value(value),
    });
    let declared = options.all("mon", "chardev").into_iter();
    let declared = declared.filter(|monitor| monitor.get("mode") == Some(b"control"));
    let declared = declared.filter_map(|monitor| device(monitor.get("chardev")?));
    let mut found: Vec<MonitorAddress> = Vec::new();
    for address in given.chain(declared) {
        if found.len() < MOST_MONITORS && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

/// `unix:PATH,...` or `tcp:HOST:PORT,...`.
fn of_value(value: &[u8]) -> Option<MonitorAddress> {
    if let Some(rest) = value.strip_prefix(b"unix:") {
        let properties = Properties::parse(rest, "path");
        return listens(&properties)
            .then(|| properties.get("path").map(|path| MonitorAddress::of_socket(path, &properties)))?;
    }
    let properties = Properties::parse(value.strip_prefix(b"tcp:")?, "address");
    listens(&properties).then(|| MonitorAddress::of_port(properties.get("address")?))?
}

fn of_device(device: &Properties) -> Option<MonitorAddress> {
    if device.get("backend") != Some(b"socket") || !listens(device) {
        return None;
    }
    match device.get("path") {
        Some(path) => Some(MonitorAddress::of_socket(path, device)),
        None => MonitorAddress::of_host(device.get("host").unwrap_or_default(), device.get("port")?),
    }
}

/// Whether anybody who speaks plain QMP can connect to it.
fn listens(socket: &Properties) -> bool {
    let wrapped = ["telnet", "tn3270", "websocket"].iter().any(|protocol| socket.is_on(protocol));
    socket.is_on("server") && !wrapped && socket.get("tls-creds").is_none() && socket.get("fd").is_none()
}

#[cfg(test)]
mod tests {
    use super::super::command_line::Arguments;
    use super::*;

    fn found(line: &str, config: &str) -> Vec<String> {
        let arguments = Arguments::from_cmdline(line.replace(' ', "\0").as_bytes());
        let mut options = QemuOptions::new(&arguments);
        options.read_config(config.as_bytes());
        monitors(&options).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn monitors_in_command_lines() {
        for (line, expected) in [
            ("qemu -qmp unix:/run/q.sock,server=on,wait=off", &["/run/q.sock"][..]),
            ("qemu -qmp unix:path=/run/q.sock,server=on", &["/run/q.sock"]),
            ("qemu --qmp unix:/run/q.sock,server,nowait", &["/run/q.sock"]),
            ("qemu -qmp-pretty unix:/run/q.sock,nowait,server=yes", &["/run/q.sock"]),
            ("qemu -qmp unix:./q,,1.sock,server=on", &["./q,1.sock"]),
            ("qemu -qmp tcp:localhost:4444", &[]),
            ("qemu -qmp tcp:localhost:4444,server,nowait", &["tcp:127.0.0.1:4444"]),
            ("qemu -qmp tcp:0:4444,server=on", &[]),
            ("qemu -qmp tcp::4444,server=on -qmp tcp:[::1]:5555,server=on", &["tcp:127.0.0.1:4444", "tcp:[::1]:5555"]),
            ("qemu -qmp tcp:host.example:4444,server=on", &[]),
            ("qemu -qmp stdio -monitor unix:/run/hmp.sock,server=on", &[]),
            ("qemu -qmp telnet:localhost:1,server=on -qmp pty -qmp none", &[]),
            // Proxmox: its own, and one that QEMU calls.
            (
                "kvm -chardev socket,id=qmp,path=/run/100.qmp,server=on,wait=off -mon chardev=qmp,mode=control \
                 -chardev socket,id=qmp-event,path=/run/qmeventd.sock,reconnect=5 -mon chardev=qmp-event,mode=control",
                &["/run/100.qmp"],
            ),
            ("qemu -chardev socket,id=m,path=/run/m.sock,server=on -mon chardev=m,mode=control", &["/run/m.sock"]),
            (
                "qemu -mon m,mode=control,pretty=on -chardev socket,path=/run/m.sock,server,nowait,id=m",
                &["/run/m.sock"],
            ),
            ("qemu --mon mode=control,chardev=m --chardev backend=socket,id=m,path=/run/m,server=on", &["/run/m"]),
            ("qemu -chardev socket,id=m,fd=22,server=on -mon chardev=m,mode=control", &[]),
            ("qemu -chardev socket,id=m,path=/run/m.sock -mon chardev=m,mode=readline", &[]),
            ("qemu -chardev socket,id=m,path=/run/m.sock,server=on -mon chardev=m,mode=readline", &[]),
            ("qemu -chardev socket,id=m,path=/run/m.sock,server=on -mon chardev=other,mode=control", &[]),
            ("qemu -chardev socket,id=m,path=/run/m.sock,server=on -qmp chardev:m", &["/run/m.sock"]),
            ("qemu -chardev pty,id=m,path=/run/m.sock,server=on -qmp chardev:m", &[]),
            ("qemu -chardev socket,id=m,path=x,abstract=on,server=on -mon m,mode=control", &["@x"]),
            ("qemu -chardev socket,id=m,path=x,abstract=on,tight=off,server=on -mon m,mode=control", &["@x"]),
            ("qemu -chardev socket,id=m,host=127.0.0.1,port=4,server=on -mon m,mode=control", &["tcp:127.0.0.1:4"]),
            ("qemu -chardev socket,id=m,host=::,port=4,server=on -mon m,mode=control", &["tcp:[::1]:4"]),
            ("qemu -chardev socket,id=m,port=4,server=on,websocket=on -mon m,mode=control", &[]),
            ("qemu -chardev socket,id=m,port=4,server=on,telnet=on -mon m,mode=control", &[]),
            ("qemu -qmp unix:/a,server=on -qmp unix:/a,server=on -qmp unix:/b,server=on", &["/a", "/b"]),
            ("qemu -qmp", &[]),
            ("qemu -object secret,id=m,path=/x -mon chardev=m,mode=control", &[]),
        ] {
            assert_eq!(found(line, ""), *expected, "{line}");
        }
    }

    #[test]
    fn monitors_in_configuration_files() {
        let config = "[chardev \"m\"]\n  backend = \"socket\"\n  path = \"/run/m.sock\"\n  server = \"on\"\n  wait = \"off\"\n\n\
                      [mon \"monitor\"]\n  mode = \"control\"\n  chardev = \"m\"\n";
        assert_eq!(found("qemu -readconfig x", config), ["/run/m.sock"]);
        assert_eq!(found("qemu -readconfig x", &config.replace("control", "readline")), [""; 0]);
    }
}
