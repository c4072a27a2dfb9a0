//go:build linux

package inbox

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	osexec "os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/hooklatch/hooklatch/inbox/inboxtest"
)

// smallDisk returns a server whose tables lie on a disk of 24 MiB.
func smallDisk(t *testing.T) *inboxtest.Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "hooklatch-disk-")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := osexec.Command("mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", dir).CombinedOutput(); err != nil {
		os.Remove(dir)
		t.Skipf("a small disk needs the right to mount one: %v %s", err, out)
	}
	t.Cleanup(func() { // after the server has ended
		if out, err := osexec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
		os.Remove(dir)
	})
	cluster := inboxtest.NewCluster(t)
	address, err := url.Parse(cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	socket, err := os.Stat(address.Query().Get("host"))
	if err != nil {
		t.Fatal(err)
	}
	owner := socket.Sys().(*syscall.Stat_t) // whom the server runs as
	if err := errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, int(owner.Uid), int(owner.Gid))); err != nil {
		t.Fatal(err)
	}
	pool := cluster.Pool()
	exec(t, pool, `CREATE TABLESPACE small LOCATION '`+dir+`'`)
	exec(t, pool, `ALTER TABLE ALL IN TABLESPACE pg_default SET TABLESPACE small`)
	exec(t, pool, `ALTER INDEX ALL IN TABLESPACE pg_default SET TABLESPACE small`)
	return cluster
}

// X35: the disk is full. Nothing is taken that is not stored, prune works, and with the
// space comes the work, without a restart.
func TestX35_DiskFull(t *testing.T) {
	t.Parallel()
	cluster := smallDisk(t)
	pool := cluster.Pool()
	wholeAtEnd(t, pool)
	s, err := New(cluster.Pool(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	body := func() []byte {
		b := make([]byte, 100<<10)
		rand.Read(b) // what cannot be compressed
		return b
	}
	var taken []Delivery
	full := func(prefix string) (refused Delivery) {
		t.Helper()
		for n := range 1000 {
			d := delivery(fmt.Sprint(prefix, n), "")
			d.Body = body()
			d.BodyHash = sha256.Sum256(d.Body)
			d.Forwards = nil
			_, err := s.Accept(t.Context(), d)
			if errors.Is(err, ErrFull) {
				return d
			}
			if err != nil {
				t.Fatalf("%s: %v", d.DeliveryID, err)
			}
			taken = append(taken, d)
		}
		t.Fatal("void: the disk does not get full")
		return Delivery{}
	}
	accept(t, s, delivery("open", "x"))
	exec(t, pool, `VACUUM hooklatch.payload`) // its maps exist from then on, as in a database that has lived
	refused := full("a")
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.inbox WHERE delivery_id <> 'open'`); n != len(taken) || n < 100 {
		t.Errorf("%d stored, %d were taken", n, len(taken))
	}
	if _, err := s.Claim(t.Context(), ClaimRequest{Destination: "app", Limit: 1, Lease: time.Minute}); err != nil && !errors.Is(err, ErrFull) {
		t.Errorf("claim: %v", err)
	}
	if r := accept(t, s, taken[0]); !r.Duplicate {
		t.Error("a duplicate was new")
	}

	gone := prune(t, s, Retention{Bodies: time.Now().Add(time.Hour)})
	if gone[PruneBodies] != len(taken) {
		t.Errorf("pruned %v on a full disk, want %d bodies", gone, len(taken))
	}
	exec(t, pool, `VACUUM hooklatch.payload`) // in place of waiting for autovacuum
	if r := accept(t, s, refused); r.Duplicate {
		t.Error("what was refused had been stored")
	}
	taken = append(taken, refused)
	if err := s.Settle(t.Context(), settlement(claimOne(t, s, time.Now().Add(time.Hour)), OutcomeAccepted, "2xx")); err != nil {
		t.Errorf("settle: %v", err)
	}
	for n := range 400 { // pages full of conflicts
		d := delivery(fmt.Sprint("c", n/8), fmt.Sprint("other ", n))
		if n%8 == 0 {
			first := delivery(d.DeliveryID, "x")
			first.Forwards = nil
			accept(t, s, first)
			taken = append(taken, first)
		}
		var conflict *ConflictError
		if _, err := s.Accept(t.Context(), d); !errors.As(err, &conflict) {
			t.Fatal(err)
		}
	}
	full("b") // as much again
	for _, d := range taken {
		if r := accept(t, s, d); !r.Duplicate {
			t.Errorf("%s was taken, and is new", d.DeliveryID)
		}
	}
	// To take the bytes from a conflict needs room. That is told, and holds up nothing else.
	gone = map[string]int{}
	all := Retention{Bodies: time.Now().Add(time.Hour), Identities: time.Now().Add(time.Hour)}
	var refusal error
	for p, err := range s.Prune(t.Context(), all) {
		if gone[p.Kind] += p.Rows; err != nil {
			refusal = err
		}
	}
	if !errors.Is(refusal, ErrFull) || gone[PruneIdentities] != len(taken)+1 || count(t, pool, `SELECT count(*) FROM hooklatch.inbox`) != 0 {
		t.Errorf("pruned %v and %v on a full disk, want %d deliveries and %v", gone, refusal, len(taken), ErrFull)
	}
	prune(t, s, all)
	if n := count(t, pool, `SELECT count(*) FROM hooklatch.conflict`); n != 0 {
		t.Errorf("%d conflicts are left", n)
	}
}
