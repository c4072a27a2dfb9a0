package main

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

const (
	chaosPlain     = 24 // deliveries without an order in a round
	chaosResources = 4  // of each ordering
	chaosRevisions = 6  // of each resource in a round
)

// P01, P04, P05, P09: three processes share a database. They are killed, stopped beyond
// their leases, ended in order, cut off from the database, and started again. What
// somebody has a 202 for reaches the app, ends once, and in its order; and nothing is
// changed by who comes too late.
func TestP04_P05_ThreeProcessesUnderHarm(t *testing.T) {
	f := newFleet(t, inboxtest.New(t))
	f.run(f.kill, f.kill, f.kill, f.kill, f.stall, f.stall, f.terminate, f.terminate, f.end, f.end)
}

// P01, P04, X49: Postgres is killed and stopped, and processes with it. Nothing that was
// answered 202 is lost, and those that live need no restart.
func TestP01_X49_ThreeProcessesWhosePostgresIsKilled(t *testing.T) {
	t.Parallel()
	cluster := inboxtest.NewCluster(t)
	f := newFleet(t, cluster.Pool())
	crash := func() { f.outage(cluster.Kill, cluster.Start) }
	stop := func() { f.outage(cluster.Stop, cluster.Start) }
	both := func() {
		f.outage(func() { cluster.Kill(); kill(f.ships[0].p) }, cluster.Start)
		f.launch(f.ships[0])
	}
	f.run(crash, crash, stop, both, f.kill)
}

// run sends rounds of messages, does harm in the middle of each, in any order, and checks
// what came of it.
func (f *fleet) run(harms ...func()) {
	f.t.Helper()
	for r := range chaosResources { // where strict begins
		f.sendAll([]message{revised("strict", r, 1)}, func() {})
	}
	f.drain()
	f.random.Shuffle(len(harms), func(i, j int) { harms[i], harms[j] = harms[j], harms[i] })
	for round, harm := range harms {
		f.sendAll(f.messages(round), func() {
			n := len(f.app.requests()) + 1 + f.random.IntN(chaosPlain/2)
			eventually(f.t, "the round is under way", func() bool { return len(f.app.requests()) >= n })
			harm()
		})
		f.cutLeases()
	}
	f.drain()
	f.check()
}

func revised(ordering string, resource, revision int) message {
	return message{ordering, fmt.Sprintf("%s-%d-%d", ordering, resource, revision), fmt.Sprintf(`{"kind":"thing","of":"%d","revision":%d}`, resource, revision)}
}

// messages are those of one round, some of them twice.
func (f *fleet) messages(round int) (all []message) {
	for n := range chaosPlain {
		m := message{"none", fmt.Sprintf("none-%d-%d", round, n), fmt.Sprintf(`{"n":%d}`, n)}
		if all = append(all, m); n%4 == 0 {
			all = append(all, m)
		}
	}
	for _, ordering := range []string{"latest", "strict"} {
		for r := range chaosResources {
			for n := range chaosRevisions {
				all = append(all, revised(ordering, r, 2+round*chaosRevisions+n))
			}
		}
	}
	f.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// kill kills one process, or two, or all, and starts them again.
func (f *fleet) kill() {
	n := 1 + f.random.IntN(len(f.ships))
	victims := f.random.Perm(len(f.ships))[:n]
	f.t.Logf("kill %d", victims)
	for _, i := range victims {
		kill(f.ships[i].p)
	}
	f.cutLeases()
	for _, i := range victims {
		f.launch(f.ships[i])
	}
}

// end ends one process as its supervisor would, and starts it again.
func (f *fleet) end() {
	s := f.ships[f.random.IntN(len(f.ships))]
	f.t.Logf("end role %s", s.role)
	s.p.signal(syscall.SIGTERM)
	if code := s.p.wait(); code != 0 {
		f.t.Errorf("role %s: exit code %d", s.role, code)
	}
	f.launch(s)
}

// terminate ends all their connections to the database.
func (f *fleet) terminate() {
	n := number(f.t, f.pool, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'hooklatch %'`)
	if f.t.Logf("terminate %d", n); n == 0 {
		f.t.Error("void: there was no connection")
	}
}

// outage takes the database away until its loss is felt.
func (f *fleet) outage(begin, end func()) {
	f.t.Log("outage")
	begin()
	before := f.refused.Load()
	id := fmt.Sprint("none-outage-", before)
	f.sendAll([]message{{"none", id, "{}"}}, func() {
		eventually(f.t, "a sender is refused", func() bool { return f.refused.Load() > before })
		end()
	})
	f.pool.Reset() // the test's own connections
}

// stall stops a process that has forwards in hand. The other one takes them over and
// settles them; then the first goes on as if nothing had been.
func (f *fleet) stall() {
	s := f.ships[2*f.random.IntN(2)]
	f.t.Logf("stall role %s", s.role)
	f.app.holdAll()
	eventually(f.t, "more is in hand than one worker holds", func() bool { return f.app.held() > fleetConcurrency })
	s.p.signal(syscall.SIGSTOP)
	cut := f.cutLeases()
	f.app.release()
	ids := make([]string, len(cut))
	for i, one := range cut {
		ids[i] = one.id
	}
	eventually(f.t, "the other worker has settled what the first one had", func() bool {
		return number(f.t, f.pool, `SELECT count(*) FROM hooklatch.outbox o JOIN hooklatch.inbox i ON i.id = o.inbox_id
			WHERE delivery_id IN ('`+strings.Join(ids, "', '")+`') AND state <> 'accepted'`) == 0
	})
	s.p.signal(syscall.SIGCONT)
	eventually(f.t, "the late settlements are in the ledger", func() bool {
		return number(f.t, f.pool, fmt.Sprintf(`SELECT count(*) FROM hooklatch.attempt WHERE late AND worker LIKE '%%:%d'`, s.p.cmd.Process.Pid)) > 0
	})
}

// settled are the attempts that the ledger has as accepted.
func (f *fleet) settled() map[lease]bool {
	f.t.Helper()
	rows, err := f.pool.Query(f.t.Context(), `SELECT delivery_id, number::text FROM hooklatch.attempt a JOIN hooklatch.outbox o ON o.id = outbox_id
		JOIN hooklatch.inbox i ON i.id = inbox_id WHERE class = '2xx' AND NOT late`)
	if err != nil {
		f.t.Fatal(err)
	}
	all := map[lease]bool{}
	var one lease
	if _, err := pgx.ForEachRow(rows, []any{&one.id, &one.attempt}, func() error { all[one] = true; return nil }); err != nil {
		f.t.Fatal(err)
	}
	return all
}

// check compares what senders, database and app have seen.
func (f *fleet) check() {
	f.t.Helper()
	t := f.t
	requests := f.app.requests()
	t.Logf("%d deliveries, %d requests, %d leases cut, %d settlements that came too late", len(f.acked), len(requests), len(f.cut),
		number(t, f.pool, `SELECT count(*) FROM hooklatch.attempt WHERE late`))
	settled := f.settled()
	taken := map[string]bool{}
	last := map[string]int{} // by lane: the revision that was accepted last
	for n, q := range requests {
		if m := f.acked[q.id]; sha256.Sum256([]byte(m.body)) != q.hash {
			t.Errorf("%s reached the app with other bytes", q.id)
		}
		taken[q.id] = taken[q.id] || q.taken
		// By the order of leases, what comes when its lease has ended belongs further up.
		before, cut := f.cut[q.lease]
		astray := q.revision < last[q.lane] || strings.HasPrefix(q.lane, "strict") && q.revision > last[q.lane]+1
		if q.lane != "" && astray && !(cut && n >= before) {
			t.Errorf("request %d: lane %s went from revision %d to %d", n, q.lane, last[q.lane], q.revision)
		}
		if settled[q.lease] {
			last[q.lane] = q.revision
		}
	}
	for id, m := range f.acked {
		if !taken[id] && m.source != "latest" { // of which the app may have got a later one
			t.Errorf("%s was answered 202, and the app never took it", id)
		}
		if f.fresh[id] > 1 {
			t.Errorf("%s was new %d times", id, f.fresh[id])
		}
	}
	for what, sql := range map[string]string{
		"deliveries without a forward that was accepted or, where that may be, superseded": `SELECT count(*) FROM hooklatch.inbox i WHERE NOT EXISTS (
			SELECT FROM hooklatch.outbox o WHERE o.inbox_id = i.id AND (state = 'accepted' OR state = 'superseded' AND source = 'latest'))`,
		"accepted forwards without exactly one accepted attempt": `SELECT count(*) FROM hooklatch.outbox o WHERE state = 'accepted' AND 1 <> (
			SELECT count(*) FROM hooklatch.attempt a WHERE a.outbox_id = o.id AND class = '2xx' AND NOT late)`,
		"accepted forwards whose accepted attempt is not the last": `SELECT count(*) FROM hooklatch.outbox o WHERE state = 'accepted' AND NOT EXISTS (
			SELECT FROM hooklatch.attempt a WHERE a.outbox_id = o.id AND class = '2xx' AND NOT late AND number = attempts)`,
		"revisions that were settled after a later one": `SELECT count(*) FROM hooklatch.outbox a JOIN hooklatch.outbox b ON a.destination = b.destination AND a.lane = b.lane
			WHERE a.state = 'accepted' AND b.state = 'accepted' AND a.revision < b.revision AND a.settled_at > b.settled_at`,
	} {
		if n := number(t, f.pool, sql); n > 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	if n := number(t, f.pool, `SELECT count(*) FROM hooklatch.inbox`); n != len(f.acked) {
		t.Errorf("%d deliveries in the inbox, %d were answered 202", n, len(f.acked))
	}
	for _, q := range requests {
		if n := number(t, f.pool, `SELECT count(*) FROM hooklatch.attempt a JOIN hooklatch.outbox o ON o.id = outbox_id JOIN hooklatch.inbox i ON i.id = inbox_id
			WHERE delivery_id = '`+q.id+`' AND number = `+q.attempt); n == 0 {
			t.Errorf("attempt %s of %s reached the app, and is not in the ledger", q.attempt, q.id)
		}
	}
	audit := start(t, []string{"DATABASE_URL=" + f.database}, "audit", "-c", f.s.dir+"/hooklatch.yaml")
	if code := audit.wait(); code != exitOK {
		t.Errorf("audit: exit code %d\n%s", code, audit.output())
	}
}
