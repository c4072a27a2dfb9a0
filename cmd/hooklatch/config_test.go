package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/hooklatch/hooklatch/verify"
)

var configNow = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

// minimal is a configuration without a fault: 14 lines.
const minimal = `version: 1
listen: {http: "127.0.0.1:8080"}
sources:
  billing:
    tenant: acme
    path: /in/billing
    scheme: zhisou-v1
    keys:
      - {id: k1, secret: {file: keys/k1}}
    forward: [app]
destinations:
  app:
    url: http://127.0.0.1:3000/webhooks
    timeout: 10s
`

func problemsOf(err error) []problem {
	var found *configProblems
	if errors.As(err, &found) {
		return found.problems
	}
	return nil
}

// shortly writes problems as line:column message.
func shortly(problems []problem) string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, fmt.Sprintf("%d:%d %s", p.Line, p.Column, p.Message))
	}
	return strings.Join(lines, "\n")
}

func TestConfigurationErrors(t *testing.T) {
	for _, test := range []struct {
		name, old, new string // old is replaced by new in minimal
		want           string
	}{
		{"no fault", "", "", ""},
		{"misspelled field", "    tenant: acme", "    tenent: acme", `5:5 unknown field "tenent", did you mean tenant?`},
		{"unknown field", "version: 1", "version: 1\nxyzzy: 2", `2:1 unknown field "xyzzy"`},
		{"field of a later version", "    forward: [app]", "    forward: [app]\n    expect_every: 1h\n    backfill: {adapter: stripe}", "11:5 expect_every is not in this version\n12:5 backfill is not in this version"},
		{"top-level field of a later version", "version: 1", "version: 1\nconsole: {}", "2:1 console is not in this version"},
		{"ordering", "forward: [app]", "forward: [app]\n    resource: {id: /id, revision: /rev}\n    ordering: coalesce", ""},
		{"strict ordering with a timeout", "forward: [app]", "forward: [app]\n    resource: {id: /id, revision: /rev}\n    ordering: strict\n    gap_timeout: 15m", ""},
		{"unknown ordering", "forward: [app]", "forward: [app]\n    resource: {id: /id, revision: /rev}\n    ordering: newest", `12:15 "newest" is not one of none, latest, coalesce, strict`},
		{"ordering without a resource", "forward: [app]", "forward: [app]\n    ordering: strict", "11:15 ordering strict needs resource.id and resource.revision: where in a delivery do they stand?"},
		{"ordering without a revision", "forward: [app]", "forward: [app]\n    resource: {id: /id}\n    ordering: latest", "12:15 ordering latest needs resource.revision: where in a delivery do they stand?"},
		{"ordering without a resource's id", "forward: [app]", "forward: [app]\n    resource: {revision: /rev}\n    ordering: latest", "11:5 a resource needs an id\n12:15 ordering latest needs resource.id: where in a delivery do they stand?"},
		{"timeout of gaps without an ordering", "forward: [app]", "forward: [app]\n    gap_timeout: 15m", "11:18 gap_timeout needs ordering strict: with none nothing waits for a revision that is missing"},
		{"timeout of gaps under latest", "forward: [app]", "forward: [app]\n    resource: {id: /id, revision: /rev}\n    ordering: latest\n    gap_timeout: 15m", "13:18 gap_timeout needs ordering strict: with latest nothing waits for a revision that is missing"},
		{"timeout of gaps of zero", "forward: [app]", "forward: [app]\n    resource: {id: /id, revision: /rev}\n    ordering: strict\n    gap_timeout: 0s", "13:18 gap_timeout must be more than 0"},
		{"pace", "timeout: 10s", "rate: 600/m\n    shares: {acme: 100}\n    breaker: {failures: 1, open_for: 1s}", ""},
		{"breaker that is open without a failure", "timeout: 10s", "breaker: {failures: 0, open_for: 0s}", "14:25 failures must be at least 1\n14:38 open_for must be more than 0"},
		{"weight of 0", "timeout: 10s", "shares: {acme: 0}", "14:20 the weight of a tenant must be 1 to 100"},
		{"weight without measure", "timeout: 10s", "shares: {acme: 101}", "14:20 the weight of a tenant must be 1 to 100"},
		{"share of a stranger", "timeout: 10s", "shares: {acme: 2, globex: 1}", "14:31 no source of tenant globex forwards to app"},
		{"rate of 0", "timeout: 10s", "rate: 0/s", `14:11 "0/s" is no rate such as 50/s, 600/m or 1000/h`},
		{"repeats", "forward: [app]", "forward: [app]\n    on_conflict: accept_first\n    conflict_ignore: [/attempt, /a~1b/0]\n    body_guard: off", ""},
		{"nothing ignored", "forward: [app]", "forward: [app]\n    conflict_ignore: []", ""},
		{"unknown rule for conflicts", "forward: [app]", "forward: [app]\n    on_conflict: overwrite", `11:18 "overwrite" is not one of reject, accept_first`},
		{"empty rule for conflicts", "forward: [app]", "forward: [app]\n    on_conflict: \"\"", `11:18 "" is not one of reject, accept_first`},
		{"unknown switch of the guard", "forward: [app]", "forward: [app]\n    body_guard: true", `11:17 "true" is not one of on, off`},
		{"ignored that is no pointer", "forward: [app]", "forward: [app]\n    conflict_ignore: [/a, attempt, \"\", /b~2]", `11:27 "attempt" is no JSON pointer: write one such as /attempt
11:36 "" is no JSON pointer: write one such as /attempt
11:40 JSON pointer "/b~2" holds a ~ that is neither ~0 nor ~1`},
		{"more ignored than a body is searched for", "forward: [app]", "forward: [app]\n    conflict_ignore: [" + strings.TrimSuffix(strings.Repeat("/a, ", 33), ", ") + "]", "11:22 33 pointers are more than 32"},
		{"retention", "version: 1", "version: 1\nretention: {body: 3d, identity: 90d, attempts: 3d}\nrefusals: {keep: 1d, max_rows: 5000}", ""},
		{"nothing outlives its delivery", "version: 1", "version: 1\nretention: {identity: 40d, body: 41d, attempts: 60d}", `2:34 body must not be longer than identity, 40d: a body goes with its delivery
2:49 attempts must not be longer than identity, 40d: they go with their delivery`},
		{"identity below the replay window", "version: 1", "version: 1\nretention: {identity: 9m}", "2:23 identity must be 10m at least: within that time a captured request of source billing verifies, and it would be taken as new"},
		{"identity below the replay window of a source's own tolerance", "version: 1", "version: 1\nretention: {identity: 3h}\ndefaults: {tolerance: 1h}", ""},
		{"retention of zero", "version: 1", "version: 1\nretention: {body: 0s, identity: 0d, attempts: 0h}\nrefusals: {keep: 0d, max_rows: 10}", `2:19 body must be more than 0
2:33 identity must be more than 0
2:47 attempts must be more than 0
3:18 keep must be more than 0
3:32 max_rows must be 1000 to 10000000`},
		{"retention without a unit", "version: 1", "version: 1\nretention: {body: 30}", `2:19 "30" has no unit: write 30s for seconds (ms, s, m, h, d)`},
		{"explaining refusals, which is in a later version", "version: 1", "version: 1\nrefusals: {explain: true}", "2:12 explain is not in this version"},
		{"ACME", "listen:", "tls: {mode: acme}\nlisten:", "2:13 mode acme is not in this version: files and off are"},
		{"three schemes", "scheme: zhisou-v1", "scheme: [zhisou-v1, github, stripe]", "7:13 a list of schemes holds two: the one that the sender leaves and the one that it goes over to"},
		{"one scheme in a list", "scheme: zhisou-v1", "scheme: [zhisou-v1]", "7:13 a list of schemes holds two: the one that the sender leaves and the one that it goes over to"},
		{"one scheme twice", "scheme: zhisou-v1", "scheme: [zhisou-v1, zhisou-v1]", "7:25 scheme zhisou-v1 stands twice"},
		{"second scheme misspelled", "scheme: zhisou-v1", "scheme: [zhisou-v1, gihtub]", `7:25 no scheme is called "gihtub", did you mean github?`},
		{"second scheme a list", "scheme: zhisou-v1", "scheme: [zhisou-v1, [github]]", "7:25 a list where a single value belongs"},
		{"second scheme with a fault", "scheme: zhisou-v1", "scheme: [zhisou-v1, {preset: github, algo: hmac-sha265}]", `7:48 algo: unknown value "hmac-sha265", did you mean hmac-sha256?`},
		{"second scheme without a name", "scheme: zhisou-v1", `scheme: [zhisou-v1, {algo: token, signature: {name: X}, id: {from: "header:X-Id"}}]`, "7:13 of two schemes each needs a name, which its keys say"},
		{"two schemes, a key of neither", "scheme: zhisou-v1", "scheme: [zhisou-v1, github]", "9:9 key k1 does not say its scheme: zhisou-v1 or github"},
		{"two schemes, a key of another", "scheme: zhisou-v1\n    keys:\n      - {id: k1, ", "scheme: [zhisou-v1, github]\n    keys:\n      - {id: k1, scheme: stripe, ", `9:26 "stripe" is not one of zhisou-v1, github`},
		{"two schemes, keys of one", "scheme: zhisou-v1\n    keys:\n      - {id: k1, ", "scheme: [zhisou-v1, github]\n    keys:\n      - {id: k1, scheme: github, ", "9:7 no key is for scheme zhisou-v1"},
		{"two schemes, one without a delivery id", "scheme: zhisou-v1\n    keys:\n", "scheme: [zhisou-v1, asana]\n    event: {id: /id}\n    keys:\n      - {id: k0, scheme: zhisou-v1, secret: {file: k0}}\n      - {id: k2, scheme: asana, secret: {file: k2}}\n#",
			"7:13 scheme zhisou-v1 carries a delivery id, scheme asana does not: one delivery would come in twice"},
		{"two schemes, a key that is never valid", "scheme: zhisou-v1\n    keys:\n", "scheme: [zhisou-v1, github]\n    keys:\n      - {id: k0, scheme: zhisou-v1, secret: {file: k0}, not_after: 2026-01-01T00:00:00Z}\n      - {id: k2, scheme: github, secret: {file: k2}}\n#",
			"9:7 no key is valid now or later: the last one ended 2026-01-01T00:00:00Z"},
		{"a key of another scheme than the source's", "{id: k1, ", "{id: k1, scheme: github, ", "9:26 key k1 is for scheme github, and the source has scheme zhisou-v1"},
		{"header that no scheme names", "scheme: zhisou-v1", "scheme: zhisou-v1\n    rename: {X-Other: X-Mine}", "8:5 rename: no header X-Other is named by scheme zhisou-v1"},
		{"several at once", "path: /in/billing\n    scheme: zhisou-v1", "pth: /in\n    scheme: zhisou-v1\n    max_body: 3 MiB\n    tolerance: 300", `6:5 unknown field "pth", did you mean path?
8:15 "3 MiB" is no size such as 262144, 256KiB or 25MiB
9:16 "300" has no unit: write 300s for seconds (ms, s, m, h, d)`},
		{"a misspelled field and a rule that is broken elsewhere", "path: /in/billing\n    scheme: zhisou-v1", "pth: /in\n    scheme: zhisou-v2", `6:5 unknown field "pth", did you mean path?
7:13 no scheme is called "zhisou-v2", did you mean zhisou-v1?`},
		{"a field of a later version beside what is wrong in this one", "forward: [app]", "forward: [shop]\n    expect_every: 1h", `10:15 unknown destination "shop": app is configured
11:5 expect_every is not in this version`},
		{"misspelled scheme", "scheme: zhisou-v1", "schem: zhisou-v1", `7:5 unknown field "schem", did you mean scheme?`},
		{"misspelled section", "destinations:", "destinatons:", `11:1 unknown field "destinatons", did you mean destinations?`},
		{"misspelled mode", "listen: {http: \"127.0.0.1:8080\"}", "listen: {https: \":443\"}\ntls: {mod: files}", `3:7 unknown field "mod", did you mean mode?`},
		{"destination that is empty", "  app:\n    url: http://127.0.0.1:3000/webhooks\n    timeout: 10s", "  app:", "12:3 app is empty"},
		{"limit that is no size", "forward: [app]", "forward: [app]\n    max_body: 1MiB\nlimits: {body_bytes: much}", `12:22 "much" is no size such as 262144, 256KiB or 25MiB`},
		{"secret in clear text beside another problem", "secret: {file: keys/k1}", "secret: hunter2hunter2, not_before: 2027-01-01T00:00:00Z, not_after: 2026-01-01T00:00:00Z", `9:26 a secret does not stand in the file: write {file: F}, {env: NAME} or {exec: [PROGRAM, ARGUMENT]}
9:87 key k1 is never valid: not_after does not lie behind not_before`},
		{"byte order mark", "version: 1", "\ufeffversion: 1", ""},
		{"port that is none", "127.0.0.1:8080", "127.0.0.1:99999", `2:16 "99999" is no port: 0 to 65535 are`},
		{"another format", "version: 1", "version: 2", "1:10 version must be 1: this program reads no other format"},
		{"version missing", "version: 1\n", "", "1:1 version must be 1: this program reads no other format"},
		{"field twice", "    tenant: acme", "    tenant: acme\n    tenant: other", `6:5 mapping key "tenant" already defined at [5:5]`},
		{"list in place of a mapping", "destinations:\n  app:", "destinations:\n  app: []\n  b:", "12:8 a list where a mapping belongs"},
		{"mapping in place of a value", "tenant: acme", "tenant: {a: b}", "5:13 a mapping where a single value belongs"},
		{"value in place of a list", "forward: [app]", "forward: app", "10:14 a single value where a list belongs"},
		{"type that would fit too much", "forward: [app]", "forward: [{to: app, types: [a, \"*.paid\"]}]", `10:36 "*.paid" is neither a type such as invoice.paid nor one of invoice.* and *`},
		{"types without a list", "forward: [app]", "forward: [app]\n    types: {else: refuse}", "11:5 allow is missing: which types are taken as they come?"},
		{"types with an empty list", "forward: [app]", "forward: [app]\n    types: {allow: []}", "11:5 allow is missing: which types are taken as they come?"},
		{"rule for other types that is none", "forward: [app]", "forward: [app]\n    types: {allow: [a.*, a*], else: drop}", `11:26 "a*" is neither a type such as invoice.paid nor one of invoice.* and *
11:37 "drop" is not one of hold, refuse`},
		{"unknown destination", "forward: [app]", "forward: [app, shop]", `10:20 unknown destination "shop": app is configured`},
		{"unknown destination in an entry", "forward: [app]", "forward: [{to: shop, types: [a]}]", `10:20 unknown destination "shop": app is configured`},
		{"two sources on one route", "destinations:", "  other:\n    tenant: acme\n    path: /in/billing\n    scheme: github\n    keys: [{id: g, secret: {env: G}}]\n    event: {id: /id}\n    forward: [app]\ndestinations:", "13:11 source billing has this host and path too"},
		{"tolerance of zero", "forward: [app]", "forward: [app]\n    tolerance: 0s", "11:16 tolerance must be more than 0"},
		{"default tolerance of zero", "listen:", "defaults: {tolerance: 0s}\nlisten:", "2:23 tolerance must be more than 0"},
		{"secret in clear text", "secret: {file: keys/k1}", "secret: hunter2hunter2hunter2hunter2", "9:26 a secret does not stand in the file: write {file: F}, {env: NAME} or {exec: [PROGRAM, ARGUMENT]}"},
		{"two places of a secret", "{file: keys/k1}", "{file: keys/k1, env: K1}", "9:26 a secret is exactly one of file, env and exec"},
		{"exec as a shell line", "{file: keys/k1}", "{exec: vault get k1}", "9:33 a single value where a list belongs: exec is no shell command, but [PROGRAM, ARGUMENT]"},
		{"no keys", "    keys:\n      - {id: k1, secret: {file: keys/k1}}\n", "", "4:3 keys are missing: there is no way to skip verification"},
		{"one key id twice", "- {id: k1, secret: {file: keys/k1}}", "- {id: k1, secret: {file: keys/k1}}\n      - {id: k1, secret: {file: keys/k2}}", "10:14 key k1 stands twice"},
		{"no key now or later", "{file: keys/k1}", "{file: keys/k1}, not_after: 2026-11-30T00:00:00Z", "9:7 no key is valid now or later: the last one ended 2026-11-30T00:00:00Z"},
		{"key that is never valid", "{file: keys/k1}", "{file: keys/k1}, not_before: 2027-01-01T00:00:00Z, not_after: 2027-01-01T00:00:00Z", "9:88 key k1 is never valid: not_after does not lie behind not_before"},
		{"time without a zone", "{file: keys/k1}", "{file: keys/k1}, not_after: 2027-01-01", `9:54 "2027-01-01" is no RFC 3339 time such as 2026-12-31T00:00:00Z`},
		{"unknown scheme", "scheme: zhisou-v1", "scheme: zhisou-v2", `7:13 no scheme is called "zhisou-v2", did you mean zhisou-v1?`},
		{"recipe without sense", "scheme: zhisou-v1", "scheme: {algo: hmac-sha257}", `7:20 algo: unknown value "hmac-sha257", did you mean hmac-sha256?`},
		{"misspelled value in a recipe", "scheme: zhisou-v1", "scheme:\n      name: own\n      algo: tokn\n      signature: {name: X-Token}", `9:13 algo: unknown value "tokn", did you mean token?`},
		{"misspelled value deep in a recipe", "scheme: zhisou-v1", "scheme:\n      algo: hmac-sha256\n      template: \"{body}\"\n      signature:\n        name: X-Sig\n        encoding: base46", `12:19 signature.encoding: unknown value "base46", did you mean base64?`},
		{"misspelled fields of a recipe", "scheme: zhisou-v1", "scheme:\n      aglo: token\n      signature: {nam: X-Sig}\n      require: [{hedder: X, equals: y}]\n      handshake: [{kynd: status}]", `8:7 unknown field "aglo", did you mean algo?
9:19 unknown field "nam", did you mean name?
10:18 unknown field "hedder", did you mean header?
11:20 unknown field "kynd", did you mean kind?`},
		{"misspelled preset", "scheme: zhisou-v1", "scheme: {preset: strpe}", `7:22 preset: no scheme is called "strpe", did you mean stripe?`},
		{"kinds of values in a recipe", "scheme: zhisou-v1", "scheme: {preset: stripe, signature: {tags: v1}}", `7:48 signature.tags: a text where a list belongs`},
		{"another kind of value in a recipe", "scheme: zhisou-v1", "scheme: {preset: stripe, algo: 3}", `7:36 algo: a number where a text belongs: hmac-sha1, hmac-sha256, hmac-sha512, hash-sha1, hash-sha256, ed25519, ecdsa-p256-sha256, rsa-pkcs1-sha256, rsa-pkcs1-sha1, token, basic are known`},
		{"tolerance that is none in a recipe", "scheme: zhisou-v1", "scheme: {preset: stripe, timestamp: {tolerance_s: 5m}}", `7:55 timestamp.tolerance_s: "5m" is not a positive number of seconds, and not null`},
		{"no delivery id anywhere", "scheme: zhisou-v1", "scheme: {algo: hmac-sha256, template: \"{body}\", signature: {name: X-Sig}}", "4:3 the scheme carries no delivery id: set event.id, such as /id or header:X-Id, to take its place"},
		{"event id that is no place", "forward: [app]", "forward: [app]\n    event: {id: id}", `11:17 "id" is no place such as /data/id or header:X-Event-Id`},
		{"relative path", "path: /in/billing", "path: in/billing", "6:11 path must begin with / and hold no ?, # or blank: it is compared as it is"},
		{"path that no client sends", "path: /in/billing", "path: /in/../billing", "6:11 path must hold no . or .. segment: clients take them out before they send"},
		{"body larger than all bodies", "forward: [app]", "forward: [app]\n    max_body: 25MiB\nlimits: {body_bytes: 1MiB}", "11:15 max_body 25MiB exceeds limits.body_bytes 1MiB: no such body could ever be taken"},
		{"body larger than can be", "forward: [app]", "forward: [app]\n    max_body: 26MiB", "11:15 max_body must be 1 to 25MiB"},
		{"status that is no success", "forward: [app]", "forward: [app]\n    success_status: 301", "11:21 success_status must be 200 to 299"},
		{"https without certificates", `{http: "127.0.0.1:8080"}`, `{https: ":443"}`, "2:17 tls.mode is missing: files or off"},
		{"https with tls off", `{http: "127.0.0.1:8080"}`, `{https: ":443"}` + "\ntls: {mode: off}", "2:17 https needs certificates: set tls {mode: files, certificates: [{cert: F, key: F}]}"},
		{"http beside https", "listen: {", "tls: {mode: files, certificates: [{cert: c, key: k}]}\nlisten: {https: \":443\", ", "3:31 http beside https answers ACME challenges, which are not in this version"},
		{"address without a port", "127.0.0.1:8080", "localhost", `2:16 "localhost" is no address such as 127.0.0.1:9470 or :443`},
		{"password in a URL", "http://127.0.0.1:3000", "http://u:hunter2@127.0.0.1:3000", "13:10 a password does not stand in the file"},
		{"destination that is no URL", "http://127.0.0.1:3000/webhooks", "127.0.0.1:3000", "13:10 url must be an http or https URL with a host, or one of nats or kafka"},
		{"a stream of a cluster", "http://127.0.0.1:3000/webhooks", "nats://n1:4222,n2:4222,[::1]/hooks.eu", ""},
		{"a topic with TLS and a login", "http://127.0.0.1:3000/webhooks", "kafka+tls://k1:9093,k2/hooks\n    login: {user: u, secret: {env: P}, mechanism: plain}\n    tls: {ca: ca.pem}", ""},
		{"a password in the URL of a stream", "http://127.0.0.1:3000/webhooks", "nats://u:hunter2@n1:4222/hooks", "13:10 a password does not stand in the file: see login"},
		{"a stream without a subject", "http://127.0.0.1:3000/webhooks", "nats://n1:4222", "13:10 url must be nats://HOST:PORT/SUBJECT, with a comma between several servers"},
		{"a topic with a query", "http://127.0.0.1:3000/webhooks", "kafka://k1/hooks?acks=0", "13:10 url must be kafka://HOST:PORT/TOPIC, with a comma between several servers"},
		{"a subject with a wildcard", "http://127.0.0.1:3000/webhooks", "\"nats://n1/hooks.*\"", `13:10 Subject "hooks.*" is not made of A-Z a-z 0-9 _ - and dots between them`},
		{"a broker that is never connected to", "http://127.0.0.1:3000/webhooks", "kafka://169.254.169.254:80/t", "13:10 broker 169.254.169.254:80: address 169.254.169.254 is link-local, multicast or a metadata service"},
		{"keys of http at a stream", "http://127.0.0.1:3000/webhooks", "nats://n1/hooks\n    responses: {404: accepted}\n    tls: {ca: ca.pem}\n    login: {user: u, secret: {env: P}, mechanism: plain}", `14:5 responses is for http and https, and url is nats
15:5 tls is for nats+tls, and url is nats
16:51 mechanism is for kafka, and url is nats`},
		{"a login at an app", "timeout: 10s", "login: {secret: {env: P}}", "14:5 login is for nats and kafka, and url is http"},
		{"a login without a user", "http://127.0.0.1:3000/webhooks", "kafka://k1/hooks\n    login: {secret: {env: P}}", "14:5 user is missing"},
		{"destination that is never connected to", "http://127.0.0.1:3000", "http://169.254.169.254:80", "13:10 URL of the destination: address 169.254.169.254 is link-local, multicast or a metadata service"},
		{"the same in another spelling", "http://127.0.0.1:3000", "http://[::ffff:a9fe:a9fe]", "13:10 URL of the destination: address ::ffff:169.254.169.254 is link-local, multicast or a metadata service"},
		{"timeout of zero", "timeout: 10s", "timeout: 0s", "14:14 timeout must be more than 0"},
		{"responses, addresses and keys", "timeout: 10s", "responses: {404: retry_wait, 4xx: accepted}\n    addresses: [127.0.0.0/8, \"::1\"]\n    sign: {id: f, secret: {env: F}}", ""},
		{"two keys and a socket", "timeout: 10s", "socket: /run/app.sock\n    sign: [{id: f, secret: {env: F}, not_after: 2027-01-01T00:00:00Z}, {id: g, secret: {env: G}, encoding: hex}]", ""},
		{"responses that there are not", "timeout: 10s", "responses: {404: retry, 40x: blocked, 99: accepted, 4XX: blocked}", `14:22 "retry" is not one of accepted, retry_wait, blocked
14:34 "40x" is neither a status such as 404 nor a class such as 4xx
14:47 "99" is neither a status such as 404 nor a class such as 4xx
14:62 "4XX" is neither a status such as 404 nor a class such as 4xx`},
		{"addresses that are none", "timeout: 10s", "addresses: [10.0.0.0/33, app, \"fe80::1%eth0\"]", `14:17 "10.0.0.0/33" is neither an address such as 10.0.0.7 nor a range such as 10.0.0.0/8
14:30 "app" is neither an address such as 10.0.0.7 nor a range such as 10.0.0.0/8
14:35 "fe80::1%eth0" is neither an address such as 10.0.0.7 nor a range such as 10.0.0.0/8`},
		{"addresses without the one of the URL", "timeout: 10s", "addresses: [10.0.0.0/8]", "13:10 URL of the destination: address 127.0.0.1 is not among the addresses that may be connected to"},
		{"addresses that are never connected to", "timeout: 10s", "addresses: [127.0.0.1, 169.254.169.254]", "14:16 address 169.254.169.254 is link-local, multicast or a metadata service"},
		{"no address", "timeout: 10s", "addresses: []", "14:16 no address is listed: nothing could be connected to"},
		{"host that is a number", "127.0.0.1:3000", "2130706433:3000", "13:10 URL of the destination: host 2130706433 is a number, and no address as 127.0.0.1 is one"},
		{"socket beside addresses", "timeout: 10s", "socket: app.sock\n    addresses: [127.0.0.1]", "15:16 addresses are those of a network, and socket is in none"},
		{"socket of a long name", "timeout: 10s", "socket: /" + strings.Repeat("x", 103), "14:13 the path of a socket has at most 103 bytes"},
		{"certificates over http", "timeout: 10s", "tls: {ca: ca.crt}", "14:5 tls is for https, and url is not"},
		{"half a certificate", "http://127.0.0.1:3000/webhooks", "https://127.0.0.1:3000/webhooks\n    tls: {cert: c.crt}", "14:5 a certificate needs both cert and key"},
		{"signing key without anything", "timeout: 10s", "sign: {}", "14:5 id is missing"},
		{"no signing key", "timeout: 10s", "sign: []", "14:11 no key is listed: leave sign out where nothing is to be signed"},
		{"signing key in clear", "timeout: 10s", "sign: {id: f, secret: whsec_hunter2}", "14:27 a secret does not stand in the file: write {file: F}, {env: NAME} or {exec: [PROGRAM, ARGUMENT]}"},
		{"signing keys with faults", "timeout: 10s", `sign:
      - {id: f, secret: {env: F}, encoding: pem}
      - {id: f, secret: {env: G}, not_before: 2027-01-01T00:00:00Z, not_after: 2027-01-01T00:00:00Z}`, `15:45 "pem" is not one of utf8, hex, base64, whsec
16:14 key f stands twice
16:80 key f is never valid: not_after does not lie behind not_before`},
		{"signing key that has ended", "timeout: 10s", "sign: {id: f, secret: {env: F}, not_after: 2026-11-01T00:00:00Z}", "14:5 no key is valid now or later: the last one ended 2026-11-01T00:00:00Z"},
		{"upstream and trusted proxies", "version: 1", "version: 1\nupstream: http://localhost:3000/\ntrusted_proxies: [127.0.0.1, 10.0.0.0/8, \"2001:db8::/32\"]", ""},
		{"empty upstream", "version: 1", "version: 1\nupstream: \"\"", "2:11 upstream is empty: leave it out where every other request is to be answered 404"},
		{"upstream of another scheme", "version: 1", "version: 1\nupstream: app:3000", "2:11 URL is no http or https URL with a host"},
		{"upstream with a path", "version: 1", "version: 1\nupstream: http://app:3000/base", "2:11 URL has more than scheme, host and port: paths go on as they come"},
		{"password in upstream", "version: 1", "version: 1\nupstream: http://u:hunter2@app:3000", "2:11 a password does not stand in the file"},
		{"upstream that is hooklatch", "version: 1", "version: 1\nupstream: http://localhost:8080", "2:11 upstream is the address of listen.http: requests would go round in circles"},
		{"destination that closes upstream", "http://127.0.0.1:3000/webhooks\n    timeout: 10s", "http://127.0.0.1:3000/\nupstream: http://127.0.0.1:3000", "13:10 a destination at the root of upstream closes all of it: give the webhooks of the app a path of their own"},
		{"trusted proxies that are none", "version: 1", "version: 1\ntrusted_proxies: [10.0.0.0/33, proxy, 0.0.0.0/0]", `2:19 "10.0.0.0/33" is neither an address such as 10.0.0.7 nor a range such as 10.0.0.0/8
2:32 "proxy" is neither an address such as 10.0.0.7 nor a range such as 10.0.0.0/8
2:39 0.0.0.0/0 is everybody: each client could say that it is another`},
		{"cap below base", "timeout: 10s", "retry: {base: 1m, cap: 1s}", "14:5 retry.cap 1s is shorter than retry.base 1m"},
		{"stop that cannot end", "listen:", "stop: {total: 10s}\nlisten:", "2:1 stop.total 10s is shorter than lame_duck and shutdown, or than attempts"},
		{"empty source", "  billing:\n", "  nothing:\n  billing:\n", "4:3 nothing is empty"},
		{"second document", "version: 1\n", "version: 1\n---\na: b\n---\n", "3:1 a second document: one file holds one configuration"},
		{"tabs", "  billing:\n", "\tbilling:\n", "4:1 found character '\t' that cannot start any token"},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := strings.Replace(minimal, test.old, test.new, 1)
			if test.old != "" && text == minimal {
				t.Fatal("the text to replace is not there")
			}
			_, err := parseConfig("hooklatch.yaml", []byte(text), configNow)
			got := shortly(problemsOf(err))
			if got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret is shown:\n%v", err)
			}
		})
	}
}

// The text as it is printed: where, what, three lines around, and a caret.
func TestConfigurationErrorText(t *testing.T) {
	text := strings.NewReplacer("tenant: acme", "tenent: acme", "timeout: 10s", "timeout: soon").Replace(minimal)
	_, err := parseConfig("conf/hooklatch.yaml", []byte(text), configNow)
	const want = `conf/hooklatch.yaml has 2 problems
conf/hooklatch.yaml:5:5: unknown field "tenent", did you mean tenant?
   2 | listen: {http: "127.0.0.1:8080"}
   3 | sources:
   4 |   billing:
>  5 |     tenent: acme
           ^
   6 |     path: /in/billing
   7 |     scheme: zhisou-v1
   8 |     keys:
conf/hooklatch.yaml:14:14: "soon" is no duration such as 300s, 15m or 30d
  11 | destinations:
  12 |   app:
  13 |     url: http://127.0.0.1:3000/webhooks
> 14 |     timeout: soon
                    ^`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestTooManyActiveKeys(t *testing.T) {
	keys := func(n int, span func(i int) string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "      - {id: k%d, secret: {file: k%d}%s}\n", i, i, span(i))
		}
		return strings.NewReplacer("      - {id: k1, secret: {file: keys/k1}}\n", b.String(), "scheme: zhisou-v1", "scheme: stripe").Replace(minimal)
	}
	always := func(int) string { return "" }
	for _, test := range []struct {
		name, text, want string
	}{
		{"four", keys(4, always), ""},
		{"five", keys(5, always), "9:7 5 keys are active at once: at most 4 can be, since each is tried"},
		{"five later", keys(5, func(i int) string { return fmt.Sprintf(", not_before: 2027-01-0%dT00:00:00Z", i+1) }),
			"9:7 5 keys are active at once from 2027-01-05T00:00:00Z: at most 4 can be, since each is tried"},
		{"five, one after the other", keys(5, func(i int) string {
			return fmt.Sprintf(", not_before: 2027-01-0%dT00:00:00Z, not_after: 2027-01-0%dT00:00:00Z", i+1, i+2)
		}), ""},
		{"five that the request picks from", strings.Replace(keys(5, always), "stripe", "zhisou-v1", 1), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := parseConfig("f", []byte(test.text), configNow)
			if got := shortly(problemsOf(err)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestConfigurationWarnings(t *testing.T) {
	for _, test := range []struct {
		name, old, new, want string
	}{
		{"none", "", "", ""},
		{"last key ends soon", "{file: keys/k1}", "{file: keys/k1}, not_after: 2026-12-10T00:00:00Z", "9:7 the last key ends 2026-12-10T00:00:00Z, and none comes after it"},
		{"no key yet", "{file: keys/k1}", "{file: keys/k1}, not_before: 2026-12-10T00:00:00Z", "9:7 no key is valid now: every delivery is refused until one is"},
		{"last signing key ends soon", "timeout: 10s", "sign: {id: f, secret: {env: F}, not_after: 2026-12-10T00:00:00Z}", "14:5 the last key ends 2026-12-10T00:00:00Z, and none comes after it"},
		{"no signing key yet", "timeout: 10s", "sign: [{id: f, secret: {env: F}, not_before: 2026-12-10T00:00:00Z}]", "14:11 no key is valid now: nothing is sent until one is"},
		{"an unsigned destination at upstream", "version: 1", "version: 1\nupstream: HTTP://localhost:3000/", "13:3 the destination lies at upstream and has no sign: the app cannot tell what hooklatch has checked from what it passes through"},
		{"a signed destination at upstream", "destinations:\n  app:", "upstream: http://127.0.0.1:3000\ndestinations:\n  app:\n    sign: {id: f, secret: {env: F}}", ""},
		{"a destination elsewhere", "version: 1", "version: 1\nupstream: http://127.0.0.1:3001", ""},
		{"shares of one tenant", "timeout: 10s", "shares: {acme: 2}", "14:5 shares change nothing: acme is the only tenant that feeds app"},
		{"plain HTTP to all", "127.0.0.1:8080", ":8080", "2:16 plain HTTP on an address that others can reach: whoever is on the way can read bodies"},
		{"private listener to all", "{http:", `{admin: "0.0.0.0:9470", http:`, "2:17 the private listener can be reached from elsewhere, and asks nobody who they are"},
		{"wide tolerance", "forward: [app]", "forward: [app]\n    tolerance: 1h", "11:16 a tolerance above 15m lets a captured request be sent again for long"},
		{"a recipe whose tokens touch", "scheme: zhisou-v1", `scheme: {name: own, algo: hmac-sha256, signature: {name: X}, template: "{header:T}{body}", id: {from: "json:id"}}`, "7:13 template: {header:T} and {body} touch, so two requests can have one signed text"},
		{"a preset whose tokens touch", "scheme: zhisou-v1", "scheme: discord\n    event: {id: /id}", ""},
		{"a recipe of a wide window", "scheme: zhisou-v1", `scheme: {name: own, algo: hmac-sha256, signature: {name: X}, template: "{header:T}.{body}", id: {from: "json:id"}, timestamp: {from: "header:T", tolerance_s: 901}}`, "7:120 a window above 15m lets a captured request be sent again for long"},
		{"a preset whose tokens were made to touch", "scheme: zhisou-v1", `scheme: {preset: delivery-timestamp, template: "{header:X-Webhook-Id}{header:X-Webhook-Timestamp}.{body}"}`,
			"7:13 template: {header:X-Webhook-Id} and {header:X-Webhook-Timestamp} touch, so two requests can have one signed text"},
		{"a preset with a wider window", "scheme: zhisou-v1", "scheme: {preset: delivery-timestamp, timestamp: {tolerance_s: 86400}}", "7:42 a window above 15m lets a captured request be sent again for long"},
		{"a preset whose own window is wide", "scheme: zhisou-v1", "scheme: {preset: elevenlabs, body_unique: true}\n    event: {id: /id}", ""},
		{"two schemes, one weaker", "scheme: zhisou-v1\n    keys:\n", "scheme: [zhisou-v1, timestamped-sha256]\n    keys:\n      - {id: k0, scheme: zhisou-v1, secret: {file: k0}}\n      - {id: k2, scheme: timestamped-sha256, secret: {file: k2}}\n#",
			"7:13 scheme timestamped-sha256: delivery id not signed: a captured request is valid under another id; a source is as strong as its weaker scheme"},
		{"types that nobody reads", "forward: [app]", "types: {allow: [invoice.*]}\n    forward: [app]", "4:3 event types are compared, and no event has one: set event.type, such as /type or header:X-Event"},
		{"routes by types that nobody reads", "forward: [app]", "forward: [{to: app, types: [a]}]", "4:3 event types are compared, and no event has one: set event.type, such as /type or header:X-Event"},
		{"nobody gets it", "    forward: [app]\n", "", "4:3 no destination: deliveries are kept, and handed to nobody\n11:3 no source forwards to app"},
		{"tenants that differ by one letter", "destinations:", "  other:\n    tenant: acmee\n    path: /in/other\n    scheme: zhisou-v1\n    keys: [{id: o, secret: {env: O}}]\n    forward: [app]\ndestinations:", "12:13 tenants acme and acmee differ by one character: are they two?"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := parseConfig("f", []byte(strings.Replace(minimal, test.old, test.new, 1)), configNow)
			if err != nil {
				t.Fatal(err)
			}
			if got := shortly(c.warnings); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// A time of 0 is not left out, and does not turn into the default.
func TestStopWithoutLameDuck(t *testing.T) {
	c, err := parseConfig("f", []byte(minimal+"stop: {lame_duck: 0s}\n"), configNow)
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.masked()
	if err != nil || c.Stop.LameDuck != 0 || !strings.Contains(string(text), `"stop":{"lame_duck":"0s","shutdown":"20s",`) {
		t.Errorf("lame_duck %s, %v, in\n%s", c.Stop.LameDuck, err, text)
	}
}

func TestAnchorsAndMergedMappings(t *testing.T) {
	text := strings.Replace(minimal, "    url:", "    <<: &slow {timeout: 20s, concurrency: 3}\n    url:", 1) +
		"  other:\n    <<: *slow\n    url: http://127.0.0.1:1/\n    concurrency: 4\n"
	c, err := parseConfig("f", []byte(text), configNow)
	if err != nil {
		t.Fatal(err)
	}
	app, other := c.Destinations["app"], c.Destinations["other"]
	if app.Timeout.String() != "10s" || app.Concurrency != 3 || other.Timeout.String() != "20s" || other.Concurrency != 4 {
		t.Errorf("app %v %d, other %v %d", app.Timeout, app.Concurrency, other.Timeout, other.Concurrency)
	}
	for name, text := range map[string]string{
		"alias before its anchor":  "version: *later\n",
		"anchor inside itself":     "sources: &a {b: *a}\n",
		"merge of what is no list": "<<: 3\n",
	} {
		if _, err := parseConfig("f", []byte(text), configNow); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestNumbersStayText(t *testing.T) {
	c, err := parseConfig("f", []byte(strings.Replace(minimal, "id: k1", "id: 0123", 1)), configNow)
	if err != nil || c.Sources["billing"].Keys[0].ID != "0123" {
		t.Errorf("id %q, %v", c.Sources["billing"].Keys[0].ID, err)
	}
}

// What an editor checks with must take what the program takes.
func TestTheSchemaFitsTheExample(t *testing.T) {
	schema, err := schemaOfConfig()
	if err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(&jsonschema.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../testdata/config/hooklatch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var value any
	decodeYAML(t, string(text), &value)
	if err := resolved.Validate(value); err != nil {
		t.Errorf("the example: %v", err)
	}
	for name, change := range map[string][2]string{
		"event id":      {"forward: [app]", "forward: [app]\n    event: {id: id}"},
		"preset":        {"scheme: zhisou-v1", "scheme: zhisou-v2"},
		"recipe":        {"scheme: zhisou-v1", "scheme: {preset: stripe, signature: {nam: X}}"},
		"log level":     {"version: 1", "version: 1\nlog: {level: loud}"},
		"unknown field": {"tenant: acme", "tenent: acme"},
		"no unit":       {"timeout: 10s", "timeout: 10"},
		"bare secret":   {"{file: keys/k1}", "hunter2"},
	} {
		decodeYAML(t, strings.Replace(minimal, change[0], change[1], 1), &value)
		if resolved.Validate(value) == nil {
			t.Errorf("%s: the schema takes it", name)
		}
	}
}

// properties calls f with every field that the schema describes.
func properties(s *jsonschema.Schema, path string, f func(path string, s *jsonschema.Schema)) {
	if s == nil {
		return
	}
	for name, property := range s.Properties {
		f(join(path, name), property)
		properties(property, join(path, name), f)
	}
	properties(s.Items, path+"[]", f)
	properties(s.AdditionalProperties, path+".*", f)
	for _, alternative := range append(s.AnyOf, s.OneOf...) {
		properties(alternative, path, f)
	}
}

func TestTheSchemaDescribesEachField(t *testing.T) {
	schema, err := schemaOfConfig()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	properties(schema, "", func(path string, s *jsonschema.Schema) {
		seen[path] = true
		if s.Description == "" {
			t.Errorf("%s has no description", path)
		}
	})
	for _, path := range []string{"sources.*.event.id", "sources.*.forward[].to", "sources.*.scheme.preset", "sources.*.scheme.signature.name", "tls.mode"} {
		if !seen[path] {
			t.Errorf("%s is not in the schema", path)
		}
	}
}

// README promises that the example has every key.
func TestTheExampleHasEveryKey(t *testing.T) {
	text, err := os.ReadFile("../../testdata/config/hooklatch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseConfig("hooklatch.yaml", text, configNow)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := schemaOfConfig()
	if err != nil {
		t.Fatal(err)
	}
	names, index := regexp.MustCompile(`^(sources|destinations)\.[^.]+`), regexp.MustCompile(`\[\d+\]`)
	given := map[string]bool{"listen.http": true} // which does not go with the rest
	for path := range c.at {
		path = index.ReplaceAllString(names.ReplaceAllString(path, "$1.*"), "[]")
		given[path] = true
		given[strings.Replace(path, ".sign[].", ".sign.", 1)] = true // one key needs no list
	}
	properties(schema, "", func(path string, _ *jsonschema.Schema) {
		inRecipe := strings.HasPrefix(path, "sources.*.scheme[]") || strings.HasPrefix(path, "sources.*.scheme.") && path != "sources.*.scheme.preset"
		inSecret := strings.Contains(path, ".secret.") || strings.Contains(path, ".token.") || strings.HasPrefix(path, "database.url.") // have no place
		if !given[path] && !inRecipe && !inSecret {
			t.Errorf("the example lacks %s", path)
		}
	})
}

// A value that an editor offers must be one that the program knows.
func TestTheSchemaOffersWhatTheProgramTakes(t *testing.T) {
	unknown := []string{"is not one of", "not in this version", "unknown", "not supported"}
	for path, change := range map[string][2]string{
		"tls.mode":                        {"version: 1", "version: 1\ntls: {mode: %s}"},
		"database.migrate":                {"version: 1", "version: 1\ndatabase: {migrate: %s}"},
		"database.pooler":                 {"version: 1", "version: 1\ndatabase: {pooler: %s}"},
		"sources.*.keys.[].encoding":      {"{id: k1", "{id: k1, encoding: %s"},
		"sources.*.ordering":              {"forward:", "ordering: %s\n    forward:"},
		"sources.*.on_conflict":           {"forward:", "on_conflict: %s\n    forward:"},
		"sources.*.body_guard":            {"forward:", "body_guard: %s\n    forward:"},
		"sources.*.handshake.confirm":     {"scheme: zhisou-v1", "scheme: aws-sns\n    params: {topic_arn: a}\n    handshake: {confirm: %s}"},
		"scheme.handshake.[].kind":        {"scheme: zhisou-v1", "scheme: {preset: stripe, handshake: [{kind: %s}]}"},
		"scheme.handshake.[].method":      {"scheme: zhisou-v1", "scheme: {preset: stripe, handshake: [{kind: status, method: %s}]}"},
		"scheme.handshake.[].answer.type": {"scheme: zhisou-v1", "scheme: {preset: stripe, handshake: [{kind: status, method: GET, answer: {type: %s}}]}"},
		"destinations.*.responses.*":      {"timeout: 10s", "responses: {404: %s}"},
		"destinations.*.sign.[].encoding": {"timeout: 10s", "sign: {id: f, secret: {env: F}, encoding: %s}"},
		"log.level":                       {"version: 1", "version: 1\nlog: {level: %s}"},
		"log.format":                      {"version: 1", "version: 1\nlog: {format: %s}"},
		"scheme.algo":                     {"scheme: zhisou-v1", "scheme: {algo: %s}"},
		"scheme.secret_spec.encoding":     {"scheme: zhisou-v1", "scheme: {algo: ed25519, secret_spec: {encoding: %s}}"},
		"scheme.signature.in":             {"scheme: zhisou-v1", "scheme: {preset: stripe, signature: {in: %s}}"},
		"scheme.signature.list_sep":       {"scheme: zhisou-v1", "scheme: {preset: stripe, signature: {list_sep: %q}}"},
		"scheme.signature.kv_sep":         {"scheme: zhisou-v1", "scheme: {preset: stripe, signature: {kv_sep: %q}}"},
		"scheme.signature.encoding":       {"scheme: zhisou-v1", "scheme: {preset: stripe, signature: {encoding: %s}}"},
		"scheme.signature.hex_case":       {"scheme: zhisou-v1", "scheme: {preset: stripe, signature: {hex_case: %s}}"},
		"scheme.timestamp.format":         {"scheme: zhisou-v1", "scheme: {preset: stripe, timestamp: {format: %s}}"},
		"scheme.ack.on_conflict":          {"scheme: zhisou-v1", "scheme: {preset: stripe, ack: {on_conflict: %s}}"},
	} {
		fields := choices()
		for _, f := range recipeTexts() {
			f.path = "scheme." + f.path
			fields = append(fields, f)
		}
		i := slices.IndexFunc(fields, func(f fieldText) bool { return f.path == path })
		if i < 0 || len(fields[i].choices) == 0 {
			t.Errorf("%s offers nothing", path)
			continue
		}
		for _, value := range append(slices.Clone(fields[i].choices), "xyzzy") {
			_, err := parseConfig("f", []byte(strings.Replace(minimal, change[0], fmt.Sprintf(change[1], value), 1)), configNow)
			refused := slices.ContainsFunc(unknown, func(s string) bool { return strings.Contains(shortly(problemsOf(err)), s) })
			if refused != (value == "xyzzy") {
				t.Errorf("%s: %q: %v", path, value, err)
			}
		}
	}
}

func TestTheSchemaKnowsThePlacesOfTheProgram(t *testing.T) {
	pattern := regexp.MustCompile(fieldPattern)
	for _, text := range []string{
		"/", "/data/id", "/a~0b/~1", "/a~2", "/a~", "json:a.b", "json:a", "json:/a/b", "json:", "json:a..b", "json:.a", "json:a.", "json:a/b",
		"header:X-Id", "header:", "header:X Id", "header:X:Y", "form:a", "form:", "query:a b", "query:", "body_sha256_hex", "body", "", "id", "data.id", "sig:t", "Header:X",
	} {
		_, err := verify.ParseField(text)
		if pattern.MatchString(text) != (err == nil) {
			t.Errorf("%q: the schema takes it: %v; the program: %v", text, pattern.MatchString(text), err)
		}
	}
}

func decodeYAML(t *testing.T, text string, value *any) {
	t.Helper()
	*value = nil
	if err := yaml.Unmarshal([]byte(text), value); err != nil {
		t.Fatal(err)
	}
	// As a JSON document, which is what a schema speaks of.
	asJSON, err := json.Marshal(*value)
	if err == nil {
		err = json.Unmarshal(asJSON, value)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(minimal)
	if text, err := os.ReadFile("../../testdata/config/hooklatch.yaml"); err == nil {
		f.Add(string(text))
	}
	for _, text := range []string{"", "a", "- a\n", "a: &a [*a]", "<<: {}\n", "a: !!binary x", "? [a]\n: b", "version: 1\n---\n", "sources: {a: {scheme: {preset: stripe}}}",
		"sources:\n  a:\n    keys: [{secret: {exec: []}}]\n", "x: |\n  y\n", "{", "a: 'b", "destinations: {a: }"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseConfig("f", []byte(text), configNow)
		if err == nil {
			if _, err := c.masked(); err != nil {
				t.Errorf("what was read cannot be written: %v", err)
			}
			return
		}
		if len(problemsOf(err)) == 0 || err.Error() == "" {
			t.Errorf("an error without a problem: %v", err)
		}
	})
}
