//! `workload`'s command line: help, ranges, and the plan that follows.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use gleaner_command::args::{JsonArg, any_duration, duration_within};
use gleaner_command::failure::Failure;
use gleaner_workloads::{ITEMS_MAX, ITERATIONS_MAX, ITERATIONS_PER_US, Plan, Program, Requests, Stop, THREADS_MAX};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// What `NAME` may be besides a program's name.
pub const LIST: &str = "list";

#[derive(Debug, Args)]
#[command(
    after_help = "Work is counted in items, and computation in turns of a loop: 500 count as a microsecond, on every \
                  machine and in every run, so that two runs with the same --items did the same work and their times \
                  compare. The \
                  checksum proves it.\n\n\
                  Examples:\n\
                  \x20 gleaner workload list\n\
                  \x20 gleaner workload pipeline                      # for 5 seconds\n\
                  \x20 gleaner workload barrier --threads 4 --granularity 20us --items 20000\n\
                  \x20 gleaner ab -n 10 -- gleaner workload pipeline --items 20000\n\
                  \x20 gleaner workload matmul --for 0s               # a neighbour, until it gets SIGTERM\n\
                  \x20 gleaner workload open-loop --connect localhost:6379 --rate 200 --for 30s --json redis.json"
)]
pub struct WorkloadArgs {
    /// The program, or `list` for what each of them does
    #[arg(value_name = "NAME", value_parser = names())]
    pub name: String,
    /// Threads; what they are differs, see `gleaner workload list` [default: the vCPUs allowed]
    #[arg(long, visible_alias = "connections", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX as u64))]
    pub threads: Option<u64>,
    /// Computation between two synchronization points, e.g. 20us, 1ms, 0s [default: the program's own]
    #[arg(long, value_name = "DURATION", value_parser = granularity)]
    pub granularity: Option<u64>,
    /// The same in turns of the loop
    #[arg(long, value_name = "N", conflicts_with = "granularity")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=ITERATIONS_MAX))]
    pub granularity_iterations: Option<u64>,
    /// Do so many items: the same work in every run
    #[arg(long, value_name = "N", conflicts_with = "length")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=ITEMS_MAX))]
    pub items: Option<u64>,
    /// Go on for so long; 0s: until SIGTERM or SIGINT
    #[arg(long = "for", value_name = "DURATION", default_value = "5s", value_parser = length)]
    length: Duration,
    /// Where the data come from: the same seed, the same data
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print `progress AT_NS ITEMS` to stdout so often (AT_NS: CLOCK_MONOTONIC)
    #[arg(long, value_name = "DURATION", value_parser = period)]
    pub progress_every: Option<Duration>,
    /// End each of these lines with a word, which tells it from those of others that write to the same file
    #[arg(long, value_name = "WORD", requires = "progress_every", value_parser = word)]
    pub progress_name: Option<String>,
    /// open-loop: the server's address, an IP address or `localhost` with a port
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub connect: Option<SocketAddr>,
    /// open-loop: requests per second, over all connections
    #[arg(long, value_name = "R", default_value = "1000", value_parser = rate)]
    pub rate: f64,
    /// open-loop: what to send; \r, \n, \t, \0, \\ and \xHH stand for bytes
    #[arg(long, value_name = "TEXT", default_value = r"PING\r\n", value_parser = unescape)]
    pub request: Request,
    /// open-loop: lines in each reply
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub reply_lines: u32,
    #[command(flatten)]
    pub json: JsonArg,
}

/// The bytes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request(Vec<u8>);

impl WorkloadArgs {
    /// The plan for `program`, on as many threads as there are vCPUs unless told otherwise.
    pub fn plan(&self, program: Program, vcpus: usize) -> Result<Plan, Failure> {
        let requests = match (program, self.connect) {
            (Program::OpenLoop, None) => {
                return Err(Failure::input(
                    "open-loop needs a server to send requests to; give one, such as --connect localhost:6379",
                ));
            }
            (Program::OpenLoop, Some(server)) => Some(Requests {
                server,
                request: self.request.0.clone(),
                reply_lines: self.reply_lines,
                per_second: self.rate,
            }),
            (other, Some(_)) => {
                return Err(Failure::input(format!(
                    "--connect is for open-loop only: {other} talks to nobody; leave it out, or run open-loop"
                )));
            }
            (_, None) => None,
        };
        let plan = Plan::new(program);
        Ok(Plan {
            threads: self.threads.map_or(vcpus, |n| usize::try_from(n).unwrap_or(THREADS_MAX)).min(THREADS_MAX),
            iterations: self.granularity.or(self.granularity_iterations).unwrap_or(plan.iterations),
            stop: match self.items {
                Some(items) => Stop::Items(items),
                None if self.length.is_zero() => Stop::Told,
                None => Stop::After(self.length),
            },
            seed: self.seed,
            requests,
            ..plan
        })
    }
}

fn names() -> PossibleValuesParser {
    let list = PossibleValue::new(LIST).help("say what each of them does and whom it stands for");
    PossibleValuesParser::new(
        Program::ALL
            .map(|program| PossibleValue::new(program.description().name).help(program.description().meaning))
            .into_iter()
            .chain([list]),
    )
}

fn granularity(text: &str) -> Result<u64, String> {
    let parsed = any_duration(text)?;
    let most = Duration::from_micros(ITERATIONS_MAX / ITERATIONS_PER_US);
    if parsed > most {
        return Err(format!("must be within 0s and {}", humantime::format_duration(most)));
    }
    let iterations = parsed.as_nanos() * u128::from(ITERATIONS_PER_US) / 1_000;
    Ok(u64::try_from(iterations).unwrap_or(ITERATIONS_MAX))
}

fn period(text: &str) -> Result<Duration, String> {
    duration_within(text, Duration::from_millis(1)..=Duration::from_secs(3600))
}

fn word(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("must be a single word".into());
    }
    Ok(text.to_owned())
}

fn length(text: &str) -> Result<Duration, String> {
    duration_within(text, Duration::ZERO..=Duration::from_secs(1_000_000))
}

fn rate(text: &str) -> Result<f64, String> {
    let (min, max) = (Requests::RATE_MIN, Requests::RATE_MAX);
    number(text, min, max).ok_or_else(|| format!("must be a number of requests per second within {min} and {max}"))
}

fn number(text: &str, min: f64, max: f64) -> Option<f64> {
    text.parse().ok().filter(|number| (min..=max).contains(number))
}

/// Without a resolver: the static binary has none that works everywhere.
fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').ok_or("write it like localhost:6379, 10.0.0.2:80 or [::1]:6379")?;
    let port = port.parse().map_err(|_| format!("{port:?} is not a port; write it like localhost:6379"))?;
    let host = match host {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        _ => return Err("names are not looked up; give the IP address, or localhost".into()),
    };
    Ok(SocketAddr::new(host, port))
}

fn unescape(text: &str) -> Result<Request, String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next() {
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'0') => 0,
            Some(b'\\') => b'\\',
            Some(b'x') => {
                let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
                let (high, low) = (digit(rest.next()), digit(rest.next()));
                let value = high.zip(low).map(|(high, low)| 16 * high + low);
                value
                    .and_then(|value| u8::try_from(value).ok())
                    .ok_or(r"\x needs two hexadecimal digits, as in \x0a")?
            }
            _ => {
                return Err(
                    r"a backslash must be followed by r, n, t, 0, \ or xHH; write \\ for the backslash itself".into()
                );
            }
        });
    }
    if bytes.is_empty() { Err("there must be something to send".into()) } else { Ok(Request(bytes)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_unescaped() {
        assert_eq!(unescape(r"GET a\r\n\x00\xfF\\").unwrap().0, b"GET a\r\n\x00\xff\\");
        for bad in ["", "\\", r"\q", r"\x0", r"\xg0"] {
            assert!(unescape(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_are_literal() {
        for (text, expected) in
            [("localhost:1", "127.0.0.1:1"), ("10.0.0.2:65535", "10.0.0.2:65535"), ("[::1]:80", "[::1]:80")]
        {
            assert_eq!(address(text).unwrap().to_string(), expected);
        }
        for bad in ["localhost", "localhost:", "localhost:65536", "example.org:80", ":80", "::1"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_granularity_is_a_number_of_turns() {
        assert_eq!(granularity("20us"), Ok(20 * ITERATIONS_PER_US));
        assert_eq!(granularity("0s"), Ok(0));
        assert_eq!(granularity("10s"), Ok(ITERATIONS_MAX));
        assert!(granularity("11s").is_err() && granularity("20").is_err());
    }
}
