package consumer_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/devdb"
	"github.com/hooklatch/hooklatch/migrations"
)

// An app that is down at first gets the delivery on the second attempt, with the
// same id and the same bytes.
func ExampleNew() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, store, stop := openStore(ctx)
	defer stop()

	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Hooklatch-Attempt") == "1" {
			http.Error(w, "starting up", http.StatusServiceUnavailable)
		}
	}))
	defer app.Close()
	forwarder, err := consumer.NewForwarder(consumer.ForwarderConfig{URL: app.URL + "/webhooks"})
	if err != nil {
		panic(err)
	}
	defer forwarder.Close()

	c, err := consumer.New(store, forwarder, consumer.Config{
		Destination: "app",
		Poll:        50 * time.Millisecond,
		Retry:       consumer.Retry{Base: 10 * time.Millisecond},
		OnAttempt: func(_ context.Context, r consumer.AttemptResult) {
			fmt.Printf("%s, attempt %d: %d\n", r.Forward.Delivery.DeliveryID, r.Forward.Attempt, r.Settlement.Status)
			if r.Settlement.Outcome == inbox.OutcomeAccepted {
				cancel() // stop; in a program: on a signal
			}
		},
	})
	if err != nil {
		panic(err)
	}
	accept(store, "app", "dlv_1")
	fmt.Println("drained:", c.Run(ctx) == nil)
	// Output:
	// dlv_1, attempt 1: 503
	// dlv_1, attempt 2: 200
	// drained: true
}

// The business row and "accepted" commit in one transaction: there is no moment
// in which only one of them is true.
func ExampleNewTx() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pool, store, stop := openStore(ctx)
	defer stop()
	if _, err := pool.Exec(ctx, "CREATE TABLE invoices (delivery_id text PRIMARY KEY, body text)"); err != nil {
		panic(err)
	}

	book := func(ctx context.Context, tx pgx.Tx, f consumer.Forward) error {
		_, err := tx.Exec(ctx, "INSERT INTO invoices VALUES ($1, $2)", f.Delivery.DeliveryID, string(f.Delivery.Body))
		return err
	}
	c, err := consumer.NewTx(store, consumer.TxHandlerFunc(book), consumer.TxConfig{
		DB: pool,
		Config: consumer.Config{
			Destination: "books",
			OnAttempt:   func(context.Context, consumer.AttemptResult) { cancel() },
		},
	})
	if err != nil {
		panic(err)
	}
	accept(store, "books", "dlv_2")
	if err := c.Run(ctx); err != nil {
		panic(err)
	}

	var both int
	err = pool.QueryRow(context.Background(), `
		SELECT count(*) FROM invoices JOIN hooklatch.inbox USING (delivery_id)
		JOIN hooklatch.outbox ON inbox_id = inbox.id AND state = 'accepted'`).Scan(&both)
	fmt.Println("booked and accepted:", both, err)
	// Output:
	// booked and accepted: 1 <nil>
}

// accept stores a delivery as the proxy does.
func accept(store *inbox.Store, destination, id string) {
	body := []byte(`{"paid":1}`)
	_, err := store.Accept(context.Background(), inbox.Delivery{
		Tenant: "acme", Source: "billing", DeliveryID: id,
		Body: body, BodyHash: sha256.Sum256(body), Method: "POST",
		Forwards: []inbox.NewForward{{Destination: destination}},
	})
	if err != nil {
		panic(err)
	}
}

// openStore opens a store on a private Postgres that ends with this process.
func openStore(ctx context.Context) (*pgxpool.Pool, *inbox.Store, func()) {
	pool, err := pgxpool.New(ctx, database())
	if err != nil {
		panic(err)
	}
	store, err := inbox.New(pool, inbox.Config{})
	if err != nil {
		panic(err)
	}
	return pool, store, pool.Close
}

var database = sync.OnceValue(func() string {
	ctx := context.Background()
	server, err := devdb.Start(ctx, devdb.Config{})
	if err != nil {
		panic(err)
	}
	url := server.URL("postgres")
	if _, err := migrations.Up(ctx, url); err != nil {
		panic(err)
	}
	return url
})

// An app that takes only what hooklatch has signed, with one key whoever the sender was,
// and any library of Standard Webhooks.
func ExampleForwarderConfig_sign() {
	const shared = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // hooklatch keygen --format whsec
	wh, _ := standardwebhooks.NewWebhook(shared)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := wh.Verify(body, r.Header); err != nil {
			http.Error(w, "not from hooklatch", http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, "%s by %s", r.Header.Get("Webhook-Id"), r.Header.Get("Hooklatch-Source"))
	}))
	defer app.Close()

	secret, err := consumer.ParseSecret(shared)
	if err != nil {
		panic(err)
	}
	forwarder, err := consumer.NewForwarder(consumer.ForwarderConfig{
		URL:  app.URL,
		Sign: []consumer.SigningKey{{ID: "fwd-1", Secret: secret}},
	})
	if err != nil {
		panic(err)
	}
	defer forwarder.Close()
	f := consumer.Forward{Report: new(consumer.Report)}
	f.Delivery = inbox.Delivery{Source: "billing", Tenant: "acme", DeliveryID: "dlv_1", Body: []byte(`{}`)}
	err = forwarder.Handle(context.Background(), f)
	fmt.Printf("%v, %s, with a key that prints as %v\n", err, f.Report.Answer, secret)

	answer, err := http.Post(app.URL, "application/json", strings.NewReader(`{}`)) // by somebody else
	if err != nil {
		panic(err)
	}
	answer.Body.Close()
	fmt.Println(answer.Status)
	// Output:
	// <nil>, dlv_1 by billing, with a key that prints as [redacted]
	// 401 Unauthorized
}
