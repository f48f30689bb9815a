"""OpenML ids and names of the tables in the paper's benchmarks, and constants of the cache."""

METADATA = b"tabicl_linear"
"""Metadata key under which a Parquet file of the cache describes its table."""
FETCHED = "table.parquet"
"""Name of a fetched file before it is moved into the cache."""

CC18 = {
    11: "balance-scale",
    14: "mfeat-fourier",
    15: "breast-w",
    16: "mfeat-karhunen",
    18: "mfeat-morphological",
    22: "mfeat-zernike",
    23: "cmc",
    29: "credit-approval",
    31: "credit-g",
    37: "diabetes",
    50: "tic-tac-toe",
    54: "vehicle",
    188: "eucalyptus",
    458: "analcatdata_authorship",
    469: "analcatdata_dmft",
    1049: "pc4",
    1050: "pc3",
    1063: "kc2",
    1068: "pc1",
    1510: "wdbc",
    1494: "qsar-biodeg",
    1480: "ilpd",
    1462: "banknote-authentication",
    1464: "blood-transfusion-service-center",
    6332: "cylinder-bands",
    23381: "dresses-sales",
    40966: "MiceProtein",
    40982: "steel-plates-fault",
    40994: "climate-model-simulation-crashes",
    40975: "car",
}
"""30 tables of OpenML-CC18, as in the authors' code."""

TABARENA = {
    46905: "Amazon_employee_access",
    46906: "anneal",
    46908: "APSFailure",
    46910: "bank-marketing",
    46911: "Bank_Customer_Churn",
    46912: "Bioresponse",
    46913: "blood-transfusion-service-center",
    46915: "churn",
    46916: "coil2000_insurance_policies",
    46918: "credit-g",
    46919: "credit_card_clients_default",
    46920: "customer_satisfaction_in_airline",
    46921: "diabetes",
    46922: "Diabetes130US",
    46924: "E-CommereShippingData",
    46927: "Fitness_Club",
    46929: "GiveMeSomeCredit",
    46930: "hazelnut-spread-contaminant-detection",
    46932: "heloc",
    46933: "hiva_agnostic",
    46935: "HR_Analytics_Job_Change_of_Data_Scientists",
    46937: "in_vehicle_coupon_recommendation",
    46938: "Is-this-a-good-customer",
    46939: "kddcup09_appetency",
    46940: "Marketing_Campaign",
    46941: "maternal_health_risk",
    46980: "MIC",
    46969: "NATICUSdroid",
    46947: "online_shoppers_intention",
    46950: "polish_companies_bankruptcy",
    46952: "qsar-biodeg",
    46955: "SDSS17",
    46956: "seismic-bumps",
    46958: "splice",
    46960: "students_dropout_and_academic_success",
    46962: "taiwanese_bankruptcy_prediction",
    46963: "website_phishing",
    46979: "jm1",
}
"""The 38 classification tables of OpenML's suite 457, TabArena."""

TABLES = {"openml-cc18": CC18, "tabarena": TABARENA}
