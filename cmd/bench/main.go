// Command bench measures how many signed requests hooklatch accepts, beside
// references taken in the same run on the same Postgres:
//
//	serve      hooklatch serve, a process of its own: verify, commit, 202
//	no-store   the same binary built with the tag nostore: everything but storing
//	pgbench    the same rows inserted as one transaction for each event, without
//	           HTTP and signatures, at the same number of clients
//
// Postgres runs with its default durability in a throwaway folder. The contenders
// take turns, round by round, so that a machine whose speed drifts is unjust to
// none; printed are medians, the spread, processor time by process, and ratios.
// Where the spread of a figure exceeds 25 % the machine was too noisy to quote it.
//
// Load, server and database share one machine: only the ratios mean something
// elsewhere.
//
// bench retention measures two ways to keep bodies; see docs/retention.md.
package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hooklatch/hooklatch/inbox/devdb"
	"github.com/hooklatch/hooklatch/migrations"
	"github.com/hooklatch/hooklatch/verify"
)

// maxBody is what the server's configuration takes.
const maxBody = 1 << 20

type options struct {
	connections []int
	rounds      int
	round       time.Duration
	bodySize    int
	out         string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "retention" {
		r, err := retentionFlags(os.Args[2:])
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(2)
		}
		finish(r.run)
	}
	var o options
	var connections string
	flag.StringVar(&connections, "connections", "1,8,64,256", "numbers of connections, by commas, 256 at most")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of each contender at each number of connections")
	flag.DurationVar(&o.round, "round", 4*time.Second, "length of a round, whole seconds up to 30")
	flag.IntVar(&o.bodySize, "body", 1536, "size of the JSON body in bytes, 64 to 1048576")
	flag.StringVar(&o.out, "o", "", "also write the results to this file, as JSON")
	flag.Parse()
	if err := o.check(connections, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	finish(func(ctx context.Context) error { return run(ctx, o) })
}

// finish runs do until it ends or a signal comes, and exits.
func finish(do func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	err := do(ctx)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "bench: interrupted")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// check refuses what the contenders cannot run: serve takes 256 requests at once,
// pgbench knows whole seconds, and each round is signed ahead in memory.
func (o *options) check(connections string, rest []string) error {
	for c := range strings.SplitSeq(connections, ",") {
		n, err := strconv.Atoi(c)
		if err != nil || n < 1 || n > 256 {
			return fmt.Errorf("-connections %q: numbers from 1 to 256 by commas, as in 1,8,64", connections)
		}
		o.connections = append(o.connections, n)
	}
	switch {
	case len(rest) > 0:
		return fmt.Errorf("argument %q is one too many: all are flags", rest[0])
	case o.rounds < 1:
		return fmt.Errorf("-rounds %d: at least 1", o.rounds)
	case o.round < time.Second || o.round > 30*time.Second || o.round%time.Second != 0:
		return fmt.Errorf("-round %v: whole seconds from 1s to 30s", o.round)
	case o.bodySize < 64 || o.bodySize > maxBody:
		return fmt.Errorf("-body %d: 64 to %d bytes", o.bodySize, maxBody)
	}
	return nil
}

func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "hooklatch-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	pg, err := devdb.Start(ctx, devdb.Config{Settings: map[string]string{"max_connections": "400"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	url := pg.URL("postgres")
	if _, err := migrations.Up(ctx, url); err != nil {
		return err
	}
	postmaster, err := postmasterOf(pg.Socket())
	if err != nil {
		return err
	}
	contenders, closeAll, err := prepare(ctx, o, dir, url, filepath.Join(pg.Binaries().Dir, "pgbench"), postmaster)
	if err != nil {
		return err
	}
	defer closeAll()

	sync, err := syncTime(dir)
	if err != nil {
		return err
	}
	fmt.Printf("%s, bodies of %d bytes, %d rounds of %v, median fsync %v\n\n", pg.Binaries(), o.bodySize, o.rounds, o.round, sync.Round(time.Microsecond))
	report := report{Body: o.bodySize, SyncNS: sync, Rounds: o.rounds, RoundNS: o.round}
	for _, n := range o.connections {
		l, err := measure(ctx, contenders, n, o.rounds)
		if err != nil {
			return err
		}
		report.Levels = append(report.Levels, l)
	}
	report.print(os.Stdout)
	return report.write(o.out)
}

// contender is one line of the comparison.
type contender struct {
	name string
	run  func(ctx context.Context, connections int) (sample, error)
}

// measure lets the contenders take turns. The first turn warms up and does not
// count.
func measure(ctx context.Context, contenders []contender, connections, rounds int) (level, error) {
	l := level{Connections: connections, Series: make([]series, len(contenders))}
	for round := range rounds + 1 {
		for i, c := range contenders {
			s, err := c.run(ctx, connections)
			if err != nil {
				return l, fmt.Errorf("%s at %d connections: %w", c.name, connections, err)
			}
			name := "warm-up"
			if round > 0 {
				name = fmt.Sprintf("round %d", round)
				l.Series[i].Samples = append(l.Series[i].Samples, s)
			}
			l.Series[i].Name = c.name
			fmt.Printf("  %3d connections, %s  %-9s %8.0f/s  p50 %v  p99 %v\n", connections, name, c.name, s.PerSecond,
				s.P50.Round(10*time.Microsecond), s.P99.Round(10*time.Microsecond))
		}
	}
	return l, nil
}

// prepare starts the servers and gives each contender its way to run a round.
func prepare(ctx context.Context, o options, dir, url, pgbenchBinary string, postmaster int) (_ []contender, closeAll func(), err error) {
	var servers []*server
	closeAll = func() {
		for _, s := range servers {
			s.stop()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	secret := make([]byte, 32)
	rand.Read(secret)
	text := hex.EncodeToString(secret)
	l, err := newLoad(text, o.bodySize)
	if err != nil {
		return nil, closeAll, err
	}
	l.postmaster = postmaster
	var contenders []contender
	for _, v := range []struct{ name, tags string }{{"serve", ""}, {"no-store", "nostore"}} {
		binary, err := build(ctx, dir, v.name, v.tags)
		if err != nil {
			return nil, closeAll, err
		}
		s, err := startServer(ctx, binary, dir, url, text)
		if err != nil {
			return nil, closeAll, err
		}
		servers = append(servers, s)
		contenders = append(contenders, contender{v.name, func(ctx context.Context, n int) (sample, error) { return l.round(ctx, s, n, o.round) }})
	}
	head, err := l.sign(1)
	if err != nil {
		return nil, closeAll, err
	}
	pgb, err := newPgbench(pgbenchBinary, url, dir, head[0], l.body, sha256.Sum256(l.body))
	if err != nil {
		return nil, closeAll, err
	}
	contenders = append(contenders, contender{"pgbench", func(ctx context.Context, n int) (sample, error) {
		before := cpuNow(0, l.postmaster)
		s, err := pgb.run(ctx, n, o.round)
		s.CPU.Postgres = cpuNow(0, l.postmaster).sub(before).Postgres
		return s, err
	}})
	return contenders, closeAll, nil
}

// newLoad signs as sender with key k1. The body is JSON that does not compress
// to nothing.
func newLoad(secret string, size int) (*load, error) {
	scheme, _ := verify.Preset("zhisou-v1")
	key, err := verify.NewKey("k1", []byte(secret), scheme.SecretSpec())
	if err != nil {
		return nil, err
	}
	keys, err := verify.NewKeySet(key)
	if err != nil {
		return nil, err
	}
	noise := make([]byte, size)
	rand.Read(noise)
	body := `{"id":"evt_1","type":"invoice.paid","data":"` + hex.EncodeToString(noise)
	body = body[:max(size-len(`"}`), len(`{"id":"evt_1","type":"invoice.paid","data":"`))] + `"}`
	return &load{signer: &verify.Verifier{Scheme: scheme, Keys: keys, MaxBody: maxBody}, path: "/in/bench", body: []byte(body)}, nil
}

// round signs ahead what the round could need at most, and runs it.
func (l *load) round(ctx context.Context, s *server, connections int, d time.Duration) (sample, error) {
	const fastest = 80_000 // requests per second, more than any server here answers
	heads, err := l.sign(int(fastest * d.Seconds()))
	if err != nil {
		return sample{}, err
	}
	before := cpuNow(s.cmd.Process.Pid, l.postmaster)
	result, err := l.run(ctx, s.addr, connections, heads, d)
	if err != nil {
		return sample{}, fmt.Errorf("%w\n%s", err, s.log)
	}
	result.CPU = cpuNow(s.cmd.Process.Pid, l.postmaster).sub(before)
	if ok := result.Statuses[202]; ok != result.Requests {
		return sample{}, fmt.Errorf("only %d of %d requests were accepted: %v", ok, result.Requests, result.Statuses)
	}
	return result, nil
}
