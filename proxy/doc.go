// Package proxy turns a signed request into a committed delivery, and lets the rest
// through to the app behind it. It is an [http.Handler]: mount it behind TLS, give it
// an [Inbox], and every 202 that it answers stands for a row that survives a crash.
//
// # Order of checks
//
// Cheapest first; the first failure answers.
//
//  1. Is the server shutting down? 503.
//  2. Host: 421. Exact path, as it came on the wire: 404, or with an upstream the
//     end of the checks: see below. Method: 405. The route
//     alone names source, tenant, keys and destinations; nothing in the query or
//     the body has a say.
//  3. Number of header fields: 400. Then everything of the signature that can be
//     judged without the body: repeated headers, delivery id and timestamp
//     grammar: 400; spelling of the signature, time window: 401.
//  4. Content-Length against the cap: 413, before a client that sent
//     Expect: 100-continue is asked for its body. A slot for the request and its
//     bytes: 503 after a short wait.
//  5. The body, under the cap and a deadline: 413, 408. Any other error of
//     reading is 400: half a body is never verified.
//  6. Key and MAC over the raw bytes: 401, one answer for all causes.
//     A challenge or ping of the scheme ends here, or at step 2 where its method
//     is another: it is answered, nothing is stored. Where such a request is not
//     signed, a refusal of step 3 waits for the first 16 KiB of the body.
//     While a sender changes its scheme, [Source.Second] judges what the first one
//     refuses at step 3 or here; the answer is that of the last one asked.
//  7. Metadata, which never fails the delivery; only where the source says so, a body
//     that is not JSON or an event type that is not allowed: 400. Then the inbox:
//     202, 409, 5xx.
//
// No request touches the database before step 7. Once the body is complete, the
// commit runs on a context of its own: a sender that hangs up cannot stop it.
//
// # Answers
//
// Refusals are RFC 9457 problems with a stable code; respond.go holds the one
// table of them. Trouble of ours is always 503 with Retry-After, so that no
// sender switches a hook off for it; 500 is a fault that waiting does not cure.
// Precise reasons go to [Config.OnResult], never to the sender. No answer is a
// redirect, and none is a 2xx without a commit but that of a handshake, which is no
// delivery ([OutcomeHandshake]). At most five in a minute and source hold a MAC under
// the signing key; the next is told 429.
//
// # Repeats
//
// The same bytes under a known delivery id are a duplicate, other bytes a conflict.
// Where senders are less tidy, the source says so, or its scheme does:
// [Source.ConflictIgnore] for a counter in the body, [Source.OnConflict] for a hook that
// one refusal turns off, [Source.BodyGuard] for an id that the signature does not cover.
//
// # Why a signature does not match
//
// [Proxy.Run] looks into requests whose MAC has failed and tells [Config.OnExplain]
// what [verify.Verifier.Explain] finds: one request at a time, at most one a second
// of each source, bodies up to 1 MiB, each within a second of its arrival or not at
// all. It begins when the answer is written, and never changes one. Until it lets
// go of a body, its bytes count as in flight. The keys of the same tenant's other
// sources are tried too, never those of another tenant.
//
// # Everything else
//
// With [Config.Upstream] a request that is for no source goes to the app behind, and
// its answer comes back, each byte as soon as it is there: events, uploads, trailers,
// interim answers, WebSocket and other upgrades. Target, query and header go on as they
// came, but for what belongs to a connection, the X-Forwarded headers, which are made
// anew, and Hooklatch-*, which only a forward may have. No cap, no slot and no deadline
// of the checks above applies; an answer must begin within five minutes. The inbox is
// never asked. Paths of destinations at the same app are closed in any spelling: they
// would be a way around the signature. [Proxy.Finish] ends what a stop cannot wait for.
//
// # What it expects of the server
//
// [NewServer] has the timeouts and limits that the checks above count on. The
// package does not end TLS, does not limit connections, and has no logger and no
// metrics: [Result] has what these need.
package proxy
