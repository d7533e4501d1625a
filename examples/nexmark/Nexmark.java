// Copyright: threadwise.smt contributors
// SPDX-License-Identifier: GPL-3.0-or-later
//
// Runs one query of Nexmark on a Flink cluster that is up, at one rate, and prints what it did as JSON.
//
//   java ... Nexmark QUERY RATE SECONDS PORT
//
// The bids come from Flink's own generator, RATE a second for SECONDS, and go nowhere. The queries are those of the Nexmark benchmark (Tucker, Tufte,
// Papadimos, Maier: NEXMark, 2002), as its public Flink version has them in SQL.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Locale;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

public final class Nexmark {
    private static final String BID = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP(3), extra STRING";
    // Query -> columns of its sink, and the query.
    private static final Map<String, String[]> QUERIES = Map.of(
        "q0", new String[] {BID, "SELECT auction, bidder, price, channel, url, dateTime, extra FROM bid"},
        "q1", new String[] {"auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), dateTime TIMESTAMP(3), extra STRING",
            "SELECT auction, bidder, 0.908 * price, dateTime, extra FROM bid"},
        "q2", new String[] {"auction BIGINT, price BIGINT", "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0"},
        "q5", new String[] {"auction BIGINT, num BIGINT",
            "SELECT AuctionBids.auction, AuctionBids.num FROM ("
            + "SELECT auction, count(*) AS num, window_start AS starttime, window_end AS endtime "
            + "FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) "
            + "GROUP BY auction, window_start, window_end) AS AuctionBids JOIN ("
            + "SELECT max(CountBids.num) AS maxn, CountBids.starttime, CountBids.endtime FROM ("
            + "SELECT count(*) AS num, window_start AS starttime, window_end AS endtime "
            + "FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) "
            + "GROUP BY auction, window_start, window_end) AS CountBids GROUP BY CountBids.starttime, CountBids.endtime) AS MaxBids "
            + "ON AuctionBids.starttime = MaxBids.starttime AND AuctionBids.endtime = MaxBids.endtime AND AuctionBids.num >= MaxBids.maxn"});

    public static void main(String[] arguments) throws Exception {
        String[] query = arguments.length == 4 ? QUERIES.get(arguments[0]) : null;
        if (query == null) {
            System.err.println("usage: Nexmark " + String.join("|", QUERIES.keySet().stream().sorted().toList()) + " RATE SECONDS PORT");
            System.exit(2);
        }
        long rate = Long.parseLong(arguments[1]);
        long rows = rate * Long.parseLong(arguments[2]);
        String port = arguments[3];
        Configuration configuration = new Configuration();
        configuration.setString("execution.target", "remote");
        configuration.setString("rest.address", "127.0.0.1");
        configuration.setString("rest.port", port);
        TableEnvironment table = TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build());
        table.executeSql("CREATE TEMPORARY TABLE bid (" + BID + ", WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND) WITH ("
            + "'connector' = 'datagen', 'number-of-rows' = '" + rows + "', 'rows-per-second' = '" + rate + "', 'fields.auction.min' = '1', "
            + "'fields.auction.max' = '10000', 'fields.price.min' = '1', 'fields.price.max' = '1000000', 'fields.channel.length' = '8', "
            + "'fields.url.length' = '24', 'fields.extra.length' = '24')");
        table.executeSql("CREATE TEMPORARY TABLE sink (" + query[0] + ") WITH ('connector' = 'blackhole')");
        double[] before = used();
        TableResult result = table.executeSql("INSERT INTO sink " + query[1]);
        result.await();
        double[] after = used();
        String job = result.getJobClient().orElseThrow().getJobID().toString();
        double seconds = milliseconds(port, job) / 1000;
        double cores = (after[0] - before[0]) / (after[1] - before[1]);
        double throughput = rows / seconds;
        System.out.println(String.format(Locale.ROOT, "{\"records\": %d, \"seconds\": %.3f, \"records_per_second\": %.3f, \"cores\": %.4f, \"per_core\": %.3f}",
            rows, seconds, throughput, cores, throughput / cores));
    }

    /** The CPU time that the processes of the cluster have used so far, and the time since some moment, in seconds. */
    private static double[] used() throws Exception {
        double busy = 0;
        for (ProcessHandle process : (Iterable<ProcessHandle>) ProcessHandle.allProcesses()::iterator) {
            boolean ofTheCluster = process.info().commandLine().orElse("").contains("org.apache.flink.runtime.");
            busy += ofTheCluster ? process.info().totalCpuDuration().orElse(Duration.ZERO).toMillis() / 1e3 : 0;
        }
        return new double[] {busy, System.nanoTime() / 1e9};
    }

    /** How long the job's tasks ran, from the first start to the last end. */
    private static double milliseconds(String port, String job) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + "/jobs/" + job)).build();
        String answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body();
        long first = Long.MAX_VALUE;
        long last = 0;
        for (JsonNode vertex : new ObjectMapper().readTree(answer).get("vertices")) {
            first = Math.min(first, vertex.get("start-time").asLong());
            last = Math.max(last, vertex.get("end-time").asLong());
        }
        return last - first;
    }
}
