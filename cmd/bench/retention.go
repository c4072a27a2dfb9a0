package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/devdb"
	"github.com/hooklatch/hooklatch/migrations"
)

// retention compares two ways to keep bodies: one table, from which batches of rows
// are deleted, and a partition for each day, which is dropped. Both hold the same
// rows, and take new deliveries through the same Store while old ones go.
type retention struct {
	rows, days int
	body       int
	rate       int // deliveries per second offered while something is measured
	span       time.Duration

	pool  *pgxpool.Pool
	store *inbox.Store
	now   time.Time // rows are spread over the days before it
	next  int       // makes delivery ids
}

func retentionFlags(args []string) (*retention, error) {
	r := &retention{}
	flags := flag.NewFlagSet("bench retention", flag.ContinueOnError)
	flags.IntVar(&r.rows, "rows", 1_000_000, "deliveries to fill each way with")
	flags.IntVar(&r.days, "days", 10, "days over which they are spread, 6 at least")
	flags.IntVar(&r.body, "body", 208, "size of a body in bytes")
	flags.IntVar(&r.rate, "rate", 1000, "deliveries offered per second while something is measured")
	flags.DurationVar(&r.span, "span", 10*time.Second, "length of one measurement")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 || r.days < 6 || r.rows < 1000*r.days || r.rate < 64 || r.span < time.Second || r.body < 32 || r.body > maxBody {
		return nil, errors.New("-days is 6 at least, -rows 1000 for each day, -rate 64, -span 1s, -body 32 to 1048576; all are flags")
	}
	return r, nil
}

func (r *retention) run(ctx context.Context) (err error) {
	pg, err := devdb.Start(ctx, devdb.Config{Settings: map[string]string{
		"max_wal_size": "8GB", "shared_buffers": "1GB", "maintenance_work_mem": "256MB"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	url := pg.URL("postgres")
	if _, err := migrations.Up(ctx, url); err != nil {
		return err
	}
	if r.pool, err = pgxpool.New(ctx, url); err != nil {
		return err
	}
	defer r.pool.Close()
	if r.store, err = inbox.New(r.pool, inbox.Config{MaxBatchRows: 64}); err != nil {
		return err
	}
	r.now = time.Now()
	fmt.Printf("%s, %d deliveries over %d days, bodies of %d bytes, %d deliveries/s offered for %v\n",
		pg.Binaries(), r.rows, r.days, r.body, r.rate, r.span)
	if err := r.fill(ctx); err != nil {
		return err
	}
	if err := r.deletes(ctx); err != nil {
		return fmt.Errorf("one table: %w", err)
	}
	if err := r.drops(ctx); err != nil {
		return fmt.Errorf("partitions: %w", err)
	}
	return nil
}

const fillInboxSQL = `
INSERT INTO hooklatch.inbox (id, tenant, source, delivery_id, body_hash, body_size, received_at, request_id, peer, scheme, key_id, event_id, event_type, config_revision) OVERRIDING SYSTEM VALUE
SELECT g, 'bench', 'bench', md5(g::text), sha256(g::text::bytea), $3, $4::timestamptz + g * $5::interval, md5(g::text)::uuid, '127.0.0.1', 'zhisou-v1', 'k1',
	'evt_' || g, 'invoice.paid', 1 FROM generate_series($1::int, $2::int) g`

const fillOutboxSQL = `
INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, state, next_attempt_at, expires_at, attempts, settled_at)
SELECT id, tenant, 'app', 'accepted', received_at, received_at, 1, received_at FROM hooklatch.inbox WHERE id BETWEEN $1 AND $2`

// Bodies differ, so that they cannot be compressed to nothing.
const fillPayloadSQL = `
INSERT INTO hooklatch.payload (inbox_id, tenant, method, raw_query, headers, body%s)
SELECT id, tenant, 'POST', '', convert_to(rpad('Content-Type: application/json', 300, 'x'), 'UTF8'),
	substr((SELECT string_agg(sha256((id * 100000 + n)::text::bytea), '') FROM generate_series(0, $3::int / 32) n), 1, $3)%s
FROM hooklatch.inbox WHERE id BETWEEN $1 AND $2`

func (r *retention) fill(ctx context.Context) error {
	step := (time.Duration(r.days) * 24 * time.Hour / time.Duration(r.rows)).Truncate(time.Microsecond)
	first := r.now.Add(-time.Duration(r.days) * 24 * time.Hour)
	err := r.timed(ctx, "fill inbox", 2, func(ctx context.Context, tx pgx.Tx, from, to int) error {
		_, err := tx.Exec(ctx, fillInboxSQL, from, to, r.body, first, step)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := r.pool.Exec(ctx, `SELECT setval(pg_get_serial_sequence('hooklatch.inbox', 'id'), $1)`, r.rows); err != nil {
		return err
	}
	err = r.timed(ctx, "fill outbox", 2, func(ctx context.Context, tx pgx.Tx, from, to int) error {
		_, err := tx.Exec(ctx, fillOutboxSQL, from, to)
		return err
	})
	if err != nil {
		return err
	}
	err = r.timed(ctx, "fill payload, one table", 2, func(ctx context.Context, tx pgx.Tx, from, to int) error {
		_, err := tx.Exec(ctx, fmt.Sprintf(fillPayloadSQL, "", ""), from, to, r.body)
		return err
	})
	if err != nil {
		return err
	}
	return r.exec(ctx, "vacuum analyze", `VACUUM ANALYZE hooklatch.inbox, hooklatch.outbox, hooklatch.payload`)
}

// timed runs do over all ids in chunks, by workers at once, without checking
// foreign keys.
func (r *retention) timed(ctx context.Context, what string, workers int, do func(ctx context.Context, tx pgx.Tx, from, to int) error) error {
	const chunk = 50_000
	start := time.Now()
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for from := 1 + w*chunk; from <= r.rows && errs[w] == nil; from += workers * chunk {
				errs[w] = pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, `SET LOCAL session_replication_role = replica`); err != nil {
						return err
					}
					return do(ctx, tx, from, min(from+chunk-1, r.rows))
				})
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	fmt.Printf("  %-58s %8.0f rows/s  %v\n", what, float64(r.rows)/took.Seconds(), took.Round(time.Millisecond))
	return errors.Join(errs...)
}

func (r *retention) exec(ctx context.Context, what, sql string) error {
	start := time.Now()
	_, err := r.pool.Exec(ctx, sql)
	fmt.Printf("  %-58s %v\n", what, time.Since(start).Round(100*time.Microsecond))
	return err
}

// purge deletes bodies from before that time, until ctx ends.
func (r *retention) purge(ctx context.Context, what string, before time.Time) error {
	start, rows, slowest := time.Now(), 0, time.Duration(0)
	for batch, err := range r.store.Prune(ctx, inbox.Retention{Bodies: before}) {
		if err != nil && ctx.Err() == nil {
			return err
		}
		rows, slowest = rows+batch.Rows, max(slowest, batch.Took)
	}
	took := time.Since(start)
	fmt.Printf("  %-58s %8.0f rows/s  %d rows in %v, slowest batch %v\n", what, float64(rows)/took.Seconds(), rows,
		took.Round(time.Millisecond), slowest.Round(100*time.Microsecond))
	return nil
}

// day is the end of the nth day of the filled rows.
func (r *retention) day(n int) time.Time { return r.now.Add(time.Duration(n-r.days) * 24 * time.Hour) }

func (r *retention) deletes(ctx context.Context) error {
	fmt.Println("\none table, DELETE of 1,000 rows at a time")
	if err := r.common(ctx, `WHERE inbox_id = $1 AND variant = 0`); err != nil {
		return err
	}
	if err := r.purge(ctx, "delete day 1, nothing else runs", r.day(1)); err != nil {
		return err
	}
	if err := r.exec(ctx, "vacuum after it, nothing else runs", `VACUUM hooklatch.payload`); err != nil {
		return err
	}
	for _, rate := range []int{r.rate, 0} {
		err := r.beside(ctx, "deleting without a pause", rate, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, r.span*3/4)
			defer cancel()
			return r.purge(ctx, "  deleted meanwhile", r.day(4))
		})
		if err != nil {
			return err
		}
	}
	return r.beside(ctx, "vacuum of payload", r.rate, func(ctx context.Context) error {
		return r.exec(ctx, "  vacuum", `VACUUM hooklatch.payload`)
	})
}

const partitionsSQL = `
DROP TABLE hooklatch.payload;
CREATE TABLE hooklatch.payload (
	inbox_id  bigint NOT NULL REFERENCES hooklatch.inbox (id),
	variant   smallint NOT NULL DEFAULT 0,
	tenant    text COLLATE "C" NOT NULL,
	method    text NOT NULL,
	raw_query bytea NOT NULL,
	headers   bytea NOT NULL,
	body      bytea NOT NULL,
	received_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (inbox_id, variant, received_at)
) PARTITION BY RANGE (received_at)`

func (r *retention) drops(ctx context.Context) error {
	fmt.Println("\na partition for each day, DETACH and DROP")
	sql := partitionsSQL
	for n := range r.days + 1 { // the last one is for what comes in meanwhile
		sql += fmt.Sprintf(";\nCREATE TABLE hooklatch.payload_%d PARTITION OF hooklatch.payload FOR VALUES FROM ('%s') TO ('%s')",
			n+1, r.day(n).Format(time.RFC3339Nano), r.day(n+1).Format(time.RFC3339Nano))
	}
	if err := r.exec(ctx, "make the partitions", sql); err != nil {
		return err
	}
	r.pool.Reset()
	err := r.timed(ctx, "fill payload, partitions", 2, func(ctx context.Context, tx pgx.Tx, from, to int) error {
		_, err := tx.Exec(ctx, fmt.Sprintf(fillPayloadSQL, ", received_at", ", received_at"), from, to, r.body)
		return err
	})
	if err != nil {
		return err
	}
	if err := r.exec(ctx, "vacuum analyze", `VACUUM ANALYZE hooklatch.payload`); err != nil {
		return err
	}
	if err := r.common(ctx, `WHERE inbox_id = $1 AND variant = 0`); err != nil {
		return err
	}
	if err := r.lookUp(ctx, `JOIN hooklatch.inbox i ON i.id = inbox_id AND i.received_at = p.received_at WHERE i.id = $1 AND variant = 0`); err != nil {
		return err
	}
	if err := r.exec(ctx, "find the open forwards of a day", `SELECT inbox_id FROM hooklatch.payload_1 p WHERE EXISTS (
		SELECT FROM hooklatch.outbox o WHERE o.inbox_id = p.inbox_id AND o.state IN ('pending', 'retry_wait', 'held', 'blocked'))`); err != nil {
		return err
	}
	if err := r.exec(ctx, "drop day 1, nothing else runs", `DROP TABLE hooklatch.payload_1`); err != nil {
		return err
	}
	if err := r.exec(ctx, "detach concurrently day 2, nothing else runs", `ALTER TABLE hooklatch.payload DETACH PARTITION hooklatch.payload_2 CONCURRENTLY`); err != nil {
		return err
	}
	if err := r.exec(ctx, "drop it", `DROP TABLE hooklatch.payload_2`); err != nil {
		return err
	}
	for _, rate := range []int{r.rate, 0} {
		day := 3
		if rate == 0 {
			day = 4
		}
		err := r.beside(ctx, "drop of a partition", rate, func(ctx context.Context) error {
			return r.exec(ctx, "  drop", fmt.Sprintf(`DROP TABLE hooklatch.payload_%d`, day))
		})
		if err != nil {
			return err
		}
	}
	return r.beside(ctx, "drop of a partition while a reader holds the table", r.rate, func(ctx context.Context) error {
		done := make(chan error, 1)
		err := pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error { // as pg_dump does
			if _, err := tx.Exec(ctx, `SELECT FROM hooklatch.payload LIMIT 1`); err != nil {
				return err
			}
			go func() { done <- r.exec(ctx, "  drop", `DROP TABLE hooklatch.payload_5`) }()
			_, err := tx.Exec(ctx, `SELECT pg_sleep(5)`)
			return err
		})
		return errors.Join(err, <-done)
	})
}

// common measures what both ways do all day.
func (r *retention) common(ctx context.Context, where string) error {
	for _, rate := range []int{r.rate, 0} {
		if err := r.beside(ctx, "nothing", rate, func(context.Context) error { return nil }); err != nil {
			return err
		}
	}
	return r.lookUp(ctx, where)
}

func (r *retention) lookUp(ctx context.Context, where string) error {
	latencies := make([]time.Duration, 2000)
	for i := range latencies {
		id, start := rand.IntN(r.rows/2)+r.rows/2, time.Now()
		var body []byte
		if err := r.pool.QueryRow(ctx, `SELECT body FROM hooklatch.payload p `+where, id).Scan(&body); err != nil {
			return fmt.Errorf("look up %d: %w", id, err)
		}
		latencies[i] = time.Since(start)
	}
	p50, p99 := quantiles(latencies)
	fmt.Printf("  %-58s p50 %v  p99 %v\n", "look up by "+strings.Fields(where)[1], p50, p99)
	return nil
}

// beside runs do while deliveries come in: rate of them per second, or, where rate
// is 0, as many as are taken. Latency counts from when a delivery was due.
func (r *retention) beside(ctx context.Context, what string, rate int, do func(context.Context) error) error {
	const senders = 64
	var mu sync.Mutex
	var latencies []time.Duration
	failed := map[string]int{}
	body := make([]byte, r.body)
	first := r.next
	r.next += 10_000_000
	start := time.Now()
	var wg sync.WaitGroup
	for w := range senders {
		wg.Go(func() {
			for k := w; ; k += senders {
				due := time.Now()
				if rate > 0 {
					due = start.Add(time.Duration(k) * time.Second / time.Duration(rate))
					time.Sleep(time.Until(due))
				}
				if due.Sub(start) > r.span || ctx.Err() != nil {
					return
				}
				_, err := r.store.Accept(ctx, inbox.Delivery{Tenant: "bench", Source: "bench", DeliveryID: "live-" + strconv.Itoa(first+k), Body: body,
					Method: "POST", EventType: "invoice.paid", EventID: "evt-" + strconv.Itoa(first+k), Forwards: []inbox.NewForward{{Destination: "app"}}})
				took := time.Since(due)
				mu.Lock()
				if latencies = append(latencies, took); err != nil {
					failed[err.Error()]++
				}
				mu.Unlock()
			}
		})
	}
	time.Sleep(r.span / 4)
	err := do(ctx)
	wg.Wait()
	if len(latencies) == 0 {
		return errors.Join(err, ctx.Err())
	}
	p50, p99 := quantiles(latencies)
	load := "all that is taken"
	if rate > 0 {
		load = strconv.Itoa(rate) + "/s"
	}
	fmt.Printf("  %-58s %8.0f accepted/s  p50 %v  p99 %v  slowest %v\n", "accept "+load+" beside: "+what, float64(len(latencies))/time.Since(start).Seconds(),
		p50.Round(10*time.Microsecond), p99.Round(10*time.Microsecond), latencies[len(latencies)-1].Round(10*time.Microsecond))
	for e, n := range failed {
		fmt.Fprintf(os.Stdout, "    %d failed: %s\n", n, strings.TrimSpace(e))
	}
	return err
}
