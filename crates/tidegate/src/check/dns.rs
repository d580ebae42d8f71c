//! `dns`: a question for a name's records, by UDP, and by TCP if the answer is cut off (RFC 1035).
//!
//! A node is well if its answer has no error (`NOERROR`) and has a record of the kind that was asked for, the wanted one
//! if there is one. Answers to other questions are passed over, a few of them.

use std::net::SocketAddr;

use hickory_proto::op::{Message, MessageType, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use tidegate_core::topology::{CheckFailure, DnsCheck, DnsRecords, SoaWanted};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Unwell, connect, udp};

/// Bytes of a datagram that are looked at.
const DATAGRAM_BYTES_MAX: usize = 4096;
/// Answers to other questions that are passed over.
const STRAYS_MAX: usize = 8;
const MALFORMED: CheckFailure = CheckFailure::Malformed("DNS");

/// What an answer is, if nothing is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    /// As wanted.
    Well,
    /// To another question.
    Stray,
    /// To be had whole by TCP.
    CutOff,
}

pub(super) async fn ask(address: SocketAddr, wanted: &DnsCheck) -> Result<(), Unwell> {
    let question = question(wanted)?;
    let bytes = question.to_vec().map_err(|_| MALFORMED)?;
    let socket = udp::connect(address).await?;
    socket.send(&bytes).await.map_err(udp::unwell)?;
    let mut answer = [0; DATAGRAM_BYTES_MAX];
    for _ in 0..STRAYS_MAX {
        let count = socket.recv(&mut answer).await.map_err(udp::unwell)?;
        match judge(&question, &answer[..count], wanted)? {
            Answered::Well => return Ok(()),
            Answered::Stray => {}
            Answered::CutOff => {
                let answer = ask_whole(address, &bytes).await?;
                return match judge(&question, &answer, wanted)? {
                    Answered::Well => Ok(()),
                    Answered::Stray | Answered::CutOff => Err(MALFORMED.into()),
                };
            }
        }
    }
    Err(MALFORMED.into())
}

/// The answer by TCP, where messages follow their length.
async fn ask_whole(address: SocketAddr, question: &[u8]) -> Result<Vec<u8>, Unwell> {
    let broken = |_| CheckFailure::Broken;
    let mut stream = connect(address).await?;
    let length = u16::try_from(question.len()).map_err(|_| MALFORMED)?;
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(question);
    stream.write_all(&framed).await.map_err(broken)?;
    let length = stream.read_u16().await.map_err(broken)?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await.map_err(broken)?;
    Ok(answer)
}

fn parse(name: &str) -> Option<Name> {
    let mut name = Name::from_ascii(name).ok()?;
    name.set_fqdn(true);
    Some(name)
}

fn question(wanted: &DnsCheck) -> Result<Message, CheckFailure> {
    let name = parse(&wanted.name).ok_or(MALFORMED)?;
    let kind = match wanted.records {
        DnsRecords::A(_) => RecordType::A,
        DnsRecords::Aaaa(_) => RecordType::AAAA,
        DnsRecords::Soa(_) => RecordType::SOA,
    };
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name, kind));
    Ok(message)
}

fn judge(question: &Message, bytes: &[u8], wanted: &DnsCheck) -> Result<Answered, CheckFailure> {
    let answer = Message::from_vec(bytes).map_err(|_| MALFORMED)?;
    let about = &answer.metadata;
    if about.id != question.metadata.id || about.message_type != MessageType::Response {
        return Ok(Answered::Stray);
    }
    // A server that cannot read a question does not repeat it.
    if about.response_code != ResponseCode::NoError {
        let code = u32::from(u16::from(about.response_code));
        return Err(CheckFailure::Code("response code", code));
    }
    if answer.queries != question.queries {
        return Ok(Answered::Stray);
    }
    if about.truncation {
        return Ok(Answered::CutOff);
    }
    let names = names(&answer);
    let mut found = answer.answers.iter();
    match found.any(|it| names.contains(&it.name) && is_wanted(&it.data, &wanted.records)) {
        true => Ok(Answered::Well),
        false => Err(CheckFailure::Answer),
    }
}

/// The name that was asked for, and those that it stands for by the aliases of an answer, which come in their order.
fn names(answer: &Message) -> Vec<Name> {
    let asked = answer.queries.iter().map(|it| it.name.clone());
    answer
        .answers
        .iter()
        .fold(asked.collect(), |mut names, it| {
            if let RData::CNAME(alias) = &it.data
                && names.contains(&it.name)
            {
                names.push(alias.0.clone());
            }
            names
        })
}

fn is_wanted(data: &RData, wanted: &DnsRecords) -> bool {
    match wanted {
        DnsRecords::A(wanted) => {
            matches!(data, RData::A(found) if wanted.is_none_or(|it| found.0 == it))
        }
        DnsRecords::Aaaa(wanted) => {
            matches!(data, RData::AAAA(found) if wanted.is_none_or(|it| found.0 == it))
        }
        DnsRecords::Soa(wanted) => {
            let RData::SOA(found) = data else {
                return false;
            };
            match wanted {
                None => true,
                Some(SoaWanted::Serial(serial)) => found.serial == *serial,
                Some(SoaWanted::Primary(name)) => parse(name).is_some_and(|it| found.mname == it),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::Record;
    use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA};
    use tokio::net::{TcpListener, UdpSocket};

    use super::*;
    use crate::testing;

    fn name(text: &str) -> Name {
        parse(text).unwrap()
    }

    fn of(records: DnsRecords) -> DnsCheck {
        DnsCheck {
            name: "Shop.test".into(),
            records,
        }
    }

    fn address() -> DnsCheck {
        of(DnsRecords::A(None))
    }

    /// An answer to this question with these records.
    fn answer(question: &Message, records: &[RData]) -> Message {
        let mut answer = question.clone();
        answer.metadata.message_type = MessageType::Response;
        for data in records {
            let record = Record::from_rdata(name("shop.test"), 60, data.clone());
            answer.add_answer(record);
        }
        answer
    }

    fn judged(wanted: &DnsCheck, records: &[RData]) -> Result<Answered, CheckFailure> {
        let question = question(wanted).unwrap();
        let bytes = answer(&question, records).to_vec().unwrap();
        judge(&question, &bytes, wanted)
    }

    fn zone() -> RData {
        let (server, mail) = (name("ns1.shop.test"), name("admin.shop.test"));
        RData::SOA(SOA::new(server, mail, 2_026_112_601, 1, 1, 1, 1))
    }

    #[test]
    fn a_record_of_the_kind_or_the_wanted_one_must_be_there() {
        let four = RData::A(A([10, 0, 0, 1].into()));
        let six = RData::AAAA(AAAA([0xfd, 0, 0, 0, 0, 0, 0, 1].into()));
        let alias = RData::CNAME(CNAME(name("web.test")));
        let (well, wrong) = (Ok(Answered::Well), Err(CheckFailure::Answer));
        assert_eq!(judged(&address(), &[alias.clone(), four.clone()]), well);
        assert_eq!(judged(&address(), &[]), wrong);
        assert_eq!(judged(&address(), &[alias, six.clone()]), wrong);
        let wanted = |host| of(DnsRecords::A(Some([10, 0, 0, host].into())));
        assert_eq!(judged(&wanted(1), std::slice::from_ref(&four)), well);
        assert_eq!(judged(&wanted(2), &[four]), wrong);
        assert_eq!(judged(&of(DnsRecords::Aaaa(None)), &[six]), well);
        let wanted = |it| of(DnsRecords::Soa(Some(it)));
        for (zone_wanted, result) in [
            (SoaWanted::Serial(2_026_112_601), well),
            (SoaWanted::Serial(2_026_112_602), wrong),
            (SoaWanted::Primary("NS1.shop.test".into()), well),
            (SoaWanted::Primary("ns2.shop.test".into()), wrong),
        ] {
            assert_eq!(judged(&wanted(zone_wanted), &[zone()]), result);
        }
        assert_eq!(judged(&of(DnsRecords::Soa(None)), &[zone()]), well);
    }

    #[test]
    fn a_record_of_another_name_counts_if_an_alias_leads_there() {
        let (wanted, web) = (address(), name("web.test"));
        let question = question(&wanted).unwrap();
        let mut direct = answer(&question, &[]);
        let other = Record::from_rdata(web.clone(), 60, RData::A(A([10, 0, 0, 1].into())));
        direct.add_answer(other.clone());
        let mut led = answer(&question, &[RData::CNAME(CNAME(web))]);
        led.add_answer(other);
        let judged = |answer: &Message| judge(&question, &answer.to_vec().unwrap(), &wanted);
        assert_eq!(judged(&direct), Err(CheckFailure::Answer));
        assert_eq!(judged(&led), Ok(Answered::Well));
    }

    #[test]
    fn an_error_says_its_code_and_other_questions_are_passed_over() {
        let wanted = address();
        let question = question(&wanted).unwrap();
        let judged = |answer: Message| judge(&question, &answer.to_vec().unwrap(), &wanted);
        let mut failed = answer(&question, &[]);
        failed.metadata.response_code = ResponseCode::NXDomain;
        failed.queries.clear();
        let code = Err(CheckFailure::Code("response code", 3));
        assert_eq!(judged(failed), code);
        let mut other = answer(&question, &[zone()]);
        other.metadata.id ^= 1;
        assert_eq!(judged(other), Ok(Answered::Stray));
        assert_eq!(judged(question.clone()), Ok(Answered::Stray), "an echo");
        let mut other = answer(&question, &[zone()]);
        other.queries[0].name = name("blog.test");
        assert_eq!(judged(other), Ok(Answered::Stray));
    }

    #[test]
    fn what_is_cut_anywhere_is_no_answer() {
        let wanted = of(DnsRecords::Soa(None));
        let question = question(&wanted).unwrap();
        let whole = answer(&question, &[zone()]).to_vec().unwrap();
        for length in 0..whole.len() {
            assert_eq!(judge(&question, &whole[..length], &wanted), Err(MALFORMED));
        }
        assert_eq!(judge(&question, &[0xff; 64], &wanted), Err(MALFORMED));
    }

    /// What a check makes of a server that answers with these messages by UDP, and with that one by TCP.
    fn asked(
        by_udp: impl Fn(&Message) -> Vec<Message>,
        by_tcp: impl Fn(&Message) -> Vec<u8>,
    ) -> Result<(), Unwell> {
        testing::runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let socket = UdpSocket::bind(address).await.unwrap();
            let by_udp = async {
                let mut bytes = [0; 512];
                let (count, from) = socket.recv_from(&mut bytes).await.unwrap();
                let question = Message::from_vec(&bytes[..count]).unwrap();
                for answer in by_udp(&question) {
                    let bytes = answer.to_vec().unwrap();
                    socket.send_to(&bytes, from).await.unwrap();
                }
                std::future::pending::<()>().await;
            };
            let by_tcp = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let length = stream.read_u16().await.unwrap();
                let mut bytes = vec![0; usize::from(length)];
                stream.read_exact(&mut bytes).await.unwrap();
                let question = Message::from_vec(&bytes).unwrap();
                stream.write_all(&by_tcp(&question)).await.unwrap();
                drop(stream);
                std::future::pending::<()>().await;
            };
            let wanted = self::address();
            tokio::select! {
                result = ask(address, &wanted) => result,
                () = by_udp => unreachable!(),
                () = by_tcp => unreachable!(),
            }
        })
    }

    fn four() -> RData {
        RData::A(A([10, 0, 0, 1].into()))
    }

    #[test]
    fn an_answer_that_is_cut_off_is_had_by_tcp() {
        let cut_off = |question: &Message| {
            let mut cut = answer(question, &[]);
            cut.metadata.truncation = true;
            vec![cut]
        };
        let framed = |question: &Message| {
            let bytes = answer(question, &[four()]).to_vec().unwrap();
            let mut framed = (bytes.len() as u16).to_be_bytes().to_vec();
            framed.extend_from_slice(&bytes);
            framed
        };
        assert_eq!(asked(cut_off, framed), Ok(()));
        let half = |question: &Message| framed(question)[..20].to_vec();
        assert_eq!(asked(cut_off, half), Err(CheckFailure::Broken.into()));
        let nothing = |_: &Message| vec![0, 0];
        assert_eq!(asked(cut_off, nothing), Err(MALFORMED.into()));
    }

    #[test]
    fn a_few_answers_to_other_questions_are_passed_over() {
        let after = |strays: usize| {
            asked(
                |question| {
                    let mut stray = answer(question, &[]);
                    stray.metadata.id ^= 1;
                    let mut all = vec![stray; strays];
                    all.push(answer(question, &[four()]));
                    all
                },
                |_| Vec::new(),
            )
        };
        assert_eq!(after(STRAYS_MAX - 1), Ok(()));
        assert_eq!(after(STRAYS_MAX), Err(MALFORMED.into()));
    }
}
