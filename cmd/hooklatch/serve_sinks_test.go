package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// One source feeds a stream and a topic: both get each delivery once, those of a
// resource in the order of its revisions, whatever the order in which they came.
func TestServeHandsOverToAStreamAndATopicInOrder(t *testing.T) {
	events, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		NoLog: true, NoSigs: true, Username: "hooklatch", Password: "p-1"})
	if err != nil {
		t.Fatal(err)
	}
	go events.Start()
	t.Cleanup(func() { events.Shutdown(); events.WaitForShutdown() })
	if !events.ReadyForConnections(10 * time.Second) {
		t.Fatal("void: NATS did not start")
	}
	conn, err := natsgo.Connect(events.ClientURL(), natsgo.UserInfo("hooklatch", "p-1"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "HOOKS", Subjects: []string{"hooks.>"}})
	if err != nil {
		t.Fatal(err)
	}
	topics, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "hooks"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(topics.Close)

	s := newSite(t)
	s.write("nats-password", "p-1\n")
	s.write("k1", strings.Repeat("0123456789abcdef", 4))
	s.write("hooklatch.yaml", fmt.Sprintf(`version: 1
listen: {http: "127.0.0.1:0", admin: "127.0.0.1:0"}
stop: {lame_duck: 1ms}
sources:
  billing:
    tenant: acme
    path: /in/billing
    scheme: zhisou-v1
    keys: [{id: k1, secret: {file: k1}}]
    event: {type: /type}
    resource: {type: /resource/type, id: /resource/id, revision: /resource/revision}
    ordering: strict
    forward: [stream, topic]
destinations:
  stream: {url: "nats://%s/hooks", login: {user: hooklatch, secret: {file: nats-password}}}
  topic: {url: "kafka://%s/hooks"}
`, events.Addr(), topics.ListenAddrs()[0]))
	database := inboxtest.URL(t)
	wholeAtEnd(t, database)
	sv := startServe(t, s, database)
	sv.url = strings.TrimSuffix(sv.url, "/in/billing")
	const last = 8
	for _, revision := range []int{1, 3, 2, 5, 8, 7, 4, 6} {
		sv.revise("billing", fmt.Sprint("d-", revision), "r-1", fmt.Sprint(revision))
	}
	eventually(t, "every delivery in the stream and in the topic", func() bool {
		info, err := stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		written := int64(0)
		for _, p := range topics.PartitionInfos("hooks") {
			written += p.HighWatermark
		}
		return info.State.Msgs == last && written == last
	})
	for seq := range uint64(last) {
		m, err := stream.GetMsg(t.Context(), seq+1)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Header.Get("Hooklatch-Revision"); got != fmt.Sprint(seq+1) || m.Subject != "hooks.billing._" {
			t.Errorf("message %d of %s is of revision %s", seq+1, m.Subject, got)
		}
	}
	c, err := readConfig(filepath.Join(s.dir, "hooklatch.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"stream", "topic"} {
		if f := checkDestination(t.Context(), c, name); f.level != fine {
			t.Errorf("doctor: %+v", f)
		}
	}
}
