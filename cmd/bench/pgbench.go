package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// pgbench runs the same rows' inserts the plain way, one transaction for each
// event, on the same server. It sends no body over the wire and checks no
// signature: the reference is what Postgres does without group commit.
type pgbench struct {
	binary string
	url    string
	script string
	dir    string
}

const eventSQL = `\set id random(1, 9000000000000000)
BEGIN;
INSERT INTO hooklatch.inbox (tenant, source, delivery_id, body_hash, body_size, request_id, peer, scheme, key_id, event_id, event_type, config_revision)
	VALUES ('bench', 'bench', 'dlv_' || lpad(:id::text, 24, '0'), '\x%[1]s', %[2]d, gen_random_uuid(), '127.0.0.1', 'zhisou-v1', 'k1', 'evt_' || :id, 'invoice.paid', 1)
	ON CONFLICT (tenant, source, delivery_id) DO NOTHING RETURNING id AS inbox \gset
SELECT id, body_hash FROM hooklatch.inbox WHERE tenant = 'bench' AND source = 'bench' AND delivery_id = 'dlv_' || lpad(:id::text, 24, '0');
INSERT INTO hooklatch.payload (inbox_id, tenant, method, raw_query, headers, body) VALUES (:inbox, 'bench', 'POST', '', '\x%[3]s', '\x%[4]s');
INSERT INTO hooklatch.outbox (inbox_id, tenant, destination, expires_at) VALUES (:inbox, 'bench', 'app', now() + interval '24 hours');
COMMIT;
`

func newPgbench(binary, url, dir string, head, body []byte, hash [32]byte) (*pgbench, error) {
	_, headers, _ := strings.Cut(strings.TrimSuffix(string(head), "\r\n\r\n"), "\r\n")
	p := &pgbench{binary: binary, url: url, dir: dir, script: filepath.Join(dir, "event.sql")}
	text := fmt.Sprintf(eventSQL, hex.EncodeToString(hash[:]), len(body), hex.EncodeToString([]byte(headers)), hex.EncodeToString(body))
	return p, os.WriteFile(p.script, []byte(text), 0o644)
}

func (p *pgbench) run(ctx context.Context, clients int, d time.Duration) (sample, error) {
	log := filepath.Join(p.dir, "latency")
	defer func() {
		logs, _ := filepath.Glob(log + ".*")
		for _, l := range logs {
			os.Remove(l)
		}
	}()
	cmd := exec.CommandContext(ctx, p.binary, "-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(clients, 2)),
		"-T", strconv.Itoa(int(d.Seconds())), "-l", "--log-prefix", log, "-f", p.script, p.url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return sample{}, fmt.Errorf("pgbench: %w\n%s", err, out)
	}
	latencies, err := readLatencies(log)
	if err != nil {
		return sample{}, err
	}
	s := sample{Requests: len(latencies)}
	for line := range strings.Lines(string(out)) {
		if tps, ok := strings.CutPrefix(line, "tps = "); ok {
			number, _, _ := strings.Cut(tps, " ")
			if s.PerSecond, err = strconv.ParseFloat(number, 64); err != nil {
				return sample{}, err
			}
		}
	}
	s.P50, s.P99 = quantiles(latencies)
	s.CPU.Client = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return s, nil
}

// readLatencies reads pgbench's logs: the third column is microseconds.
func readLatencies(prefix string) ([]time.Duration, error) {
	logs, err := filepath.Glob(prefix + ".*")
	if err != nil {
		return nil, err
	}
	var latencies []time.Duration
	for _, path := range logs {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) < 3 {
				continue
			}
			us, err := strconv.ParseFloat(fields[2], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			latencies = append(latencies, time.Duration(us*float64(time.Microsecond)))
		}
	}
	return latencies, nil
}
