package consumer_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/inbox/devdb"
	"github.com/hooklatch/hooklatch/migrations"
	"github.com/hooklatch/hooklatch/proxy"
	"github.com/hooklatch/hooklatch/verify"
)

// A whole program in one process: a signed request comes in, is committed and
// answered, and a function of one's own is called with it, again and again until
// it returns nil.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	// A throwaway Postgres. In a program: the URL of yours, and the command
	// hooklatch migrate up once before.
	postgres, err := devdb.Start(ctx, devdb.Config{})
	if err != nil {
		panic(err)
	}
	defer postgres.Stop()
	url := postgres.URL("postgres")
	if _, err := migrations.Up(ctx, url); err != nil {
		panic(err)
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		panic(err)
	}
	defer pool.Close()

	// The store wakes the consumer, which needs the store: so the variable comes
	// first. It is set before the first request can be taken.
	var worker *consumer.Consumer
	store, err := inbox.New(pool, inbox.Config{
		OnForwards: func(destination string) { worker.Wake() }, // with several destinations: that one's
	})
	if err != nil {
		panic(err)
	}

	// The application. It may be called twice with the same delivery.
	done := make(chan string)
	book := func(_ context.Context, f consumer.Forward) error {
		done <- fmt.Sprintf("booked %s %s: %s", f.Delivery.EventType, f.Delivery.DeliveryID, f.Delivery.Body)
		return nil
	}
	worker, err = consumer.New(store, consumer.HandlerFunc(book), consumer.Config{Destination: "books"})
	if err != nil {
		panic(err)
	}

	// Who may send.
	scheme, _ := verify.Preset("zhisou-v1")
	key, err := verify.NewKey("k1", []byte("0123456789abcdef0123456789abcdef"), scheme.SecretSpec())
	if err != nil {
		panic(err)
	}
	keys, err := verify.NewKeySet(key)
	if err != nil {
		panic(err)
	}
	verifier := &verify.Verifier{Scheme: scheme, Keys: keys}
	eventType, err := verify.ParseField("/type")
	if err != nil {
		panic(err)
	}
	in, err := proxy.New(store, proxy.Config{Sources: []proxy.Source{{
		Name: "billing", Tenant: "acme", Path: "/in/billing",
		Verifier: verifier, EventType: eventType,
		Forwards: []proxy.Route{{Destination: "books"}},
	}}})
	if err != nil {
		panic(err)
	}

	drained := make(chan error)
	go func() { drained <- worker.Run(ctx) }()
	server := httptest.NewServer(in) // in a program: proxy.NewServer(in), which has the timeouts

	// The sender.
	const body = `{"type":"invoice.paid"}`
	req, _ := http.NewRequest("POST", server.URL+"/in/billing", strings.NewReader(body))
	req.Header, err = verifier.Sign(verify.Request{Method: "POST", Body: []byte(body)}, verify.SignOptions{DeliveryID: "dlv_1"})
	if err != nil {
		panic(err)
	}
	res, err := server.Client().Do(req)
	if err != nil {
		panic(err)
	}
	res.Body.Close()
	fmt.Println(res.Status)
	fmt.Println(<-done)

	// The stop: take no more, then finish what is under way.
	server.Close()
	cancel()
	fmt.Println("drained:", <-drained == nil)
	// Output:
	// 202 Accepted
	// booked invoice.paid dlv_1: {"type":"invoice.paid"}
	// drained: true
}
