package main

import "testing"

func TestMaskedHeaders(t *testing.T) {
	for name, hidden := range map[string]bool{
		"X-Webhook-Signature": true, "Signature": true, "Stripe-Signature": true, "X-Shopify-Hmac-Sha256": true, "Authorization": true,
		"X-Gitlab-Token": true, "Cookie": true, "X-Api-Key": true, "X-Hub-Sig": true, "X-Client-Secret": true,
		"X-Webhook-Key-Id": false, "X-Webhook-Timestamp": false, "Content-Type": false, "X-GitHub-Event": false, "X-Webhook-Delivery-Id": false,
	} {
		got := maskHeaders(map[string][]string{name: {"a", "b"}})[name]
		if (len(got) == 1 && got[0] == redacted) != hidden {
			t.Errorf("%s: %q", name, got)
		}
	}
}
