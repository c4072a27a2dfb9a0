// Command embedding is a whole server of one's own around the packages of hooklatch:
// it receives signed deliveries in its own handler, and books each payment in the
// transaction that settles it. docs/embedding.md explains it.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/migrations"
	"github.com/hooklatch/hooklatch/proxy"
	"github.com/hooklatch/hooklatch/verify"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

// receiver takes the deliveries of one sender.
type receiver struct {
	verifier *verify.Verifier
	store    *inbox.Store
}

// ServeHTTP answers 202 once the delivery is committed, and never before.
func (rc *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := rc.accept(w, r); err != nil {
		log.Print(err) // the sender is told no more than it may know
		proxy.Refuse(w, r, err)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (rc *receiver) accept(w http.ResponseWriter, r *http.Request) error {
	req := verify.Request{Method: r.Method, URL: r.RequestURI, Header: r.Header}
	err := rc.verifier.CheckHeader(req)
	if err != nil {
		return err // before a byte of the body is read
	}
	if req.Body, err = proxy.ReadBody(w, r, verify.DefaultMaxBody); err != nil {
		return err
	}
	signed, err := rc.verifier.Verify(req)
	if err != nil {
		return err
	}
	// The sender may hang up now: what it has sent is complete, and Accept ends by itself.
	_, err = rc.store.Accept(context.WithoutCancel(r.Context()), inbox.Delivery{
		Tenant: "acme", Source: "billing", DeliveryID: signed.DeliveryID,
		Method: r.Method, RawQuery: r.URL.RawQuery, Header: r.Header, Body: req.Body,
		Scheme: signed.Scheme, KeyID: signed.KeyID,
		Forwards: []inbox.NewForward{{Destination: "books"}},
	})
	return err
}

const schemaSQL = `CREATE TABLE IF NOT EXISTS payment (
	id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	delivery_id  text NOT NULL,
	invoice      text NOT NULL,
	amount_cents bigint NOT NULL)`

const bookSQL = `INSERT INTO payment (delivery_id, invoice, amount_cents) VALUES ($1, $2, $3)`

// book is the business. tx settles the forward too: after a crash at any point there
// is the payment and the forward is done, or there is neither and it comes again.
func book(ctx context.Context, tx pgx.Tx, f consumer.Forward) error {
	var paid struct {
		Invoice     string `json:"invoice"`
		AmountCents int64  `json:"amount_cents"`
	}
	if err := json.Unmarshal(f.Delivery.Body, &paid); err != nil {
		return &consumer.AttemptError{Permanent: true, Err: err} // no retry mends it: for a person
	}
	_, err := tx.Exec(ctx, bookSQL, f.Delivery.DeliveryID, paid.Invoice, paid.AmountCents)
	return err
}

// run connects the parts and serves until ctx ends.
func run(ctx context.Context) error {
	verifier, err := newVerifier("keys/k1")
	if err != nil {
		return err
	}
	url := os.Getenv("DATABASE_URL")
	if _, err := migrations.Up(ctx, url); err != nil { // in production the schema's owner does this, before
		return err
	}
	// A pool each: bookings that take long must not keep deliveries from being accepted.
	receiving, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer receiving.Close()
	booking, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer booking.Close()
	if _, err := booking.Exec(ctx, schemaSQL); err != nil {
		return fmt.Errorf("create table payment: %w", err)
	}

	var books *consumer.Consumer // the store wakes it, and it needs the store
	store, err := inbox.New(receiving, inbox.Config{OnForwards: func(string) { books.Wake() }})
	if err != nil {
		return err
	}
	books, err = consumer.NewTx(store, consumer.TxHandlerFunc(book), consumer.TxConfig{DB: booking, Config: consumer.Config{
		Destination: "books",
		Tenants:     []string{"acme"},
		Concurrency: int(booking.Config().MaxConns), // each holds a transaction
		OnError:     func(err error) { log.Print(err) },
	}})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /in/billing", &receiver{verifier, store})
	return serve(ctx, mux, books)
}

// serve stops in the right order: no request is cut, and no lease is left behind.
func serve(ctx context.Context, h http.Handler, books *consumer.Consumer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	log.Printf("listening on http://%s/in/billing", listener.Addr())

	server := proxy.NewServer(h) // with timeouts that keep slow senders off
	served, drained := make(chan error, 1), make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	go func() { drained <- books.Run(ctx) }()
	select {
	case <-ctx.Done():
	case err = <-served: // it has failed
		stop()
	}
	grace, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(grace), <-drained)
}

// newVerifier trusts whoever signs with the key in file.
func newVerifier(file string) (*verify.Verifier, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	scheme, _ := verify.Preset("zhisou-v1")
	key, err := verify.NewKey("k1", verify.TrimSecretFile(text), scheme.SecretSpec())
	if err != nil {
		return nil, err
	}
	keys, err := verify.NewKeySet(key)
	if err != nil {
		return nil, err
	}
	v := &verify.Verifier{Scheme: scheme, Keys: keys}
	return v, v.Check()
}
